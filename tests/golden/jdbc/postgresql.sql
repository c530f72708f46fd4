-- boolean: boolean
-- int8: smallint
-- int16: smallint
-- int32: integer
-- int64: bigint
-- uint64: numeric(20,0)
-- float32: real
-- float64: double precision
-- string: text
-- uuid: uuid
-- json: json
-- xml: text
-- decimal: numeric
-- decimal(10,2): numeric(10,2)
-- decimal(38,10): numeric(38,10)
-- decimal(66,0): numeric(66,0)
-- interval: text
-- nested: json
-- bytes: bytea
-- date: date
-- time(0): time(0) without time zone
-- time(3): time(3) without time zone
-- time(7): text
-- timestamp(0): timestamp(0) without time zone
-- timestamp(6): timestamp(6) without time zone
-- timestamp(7): text
-- timestamp(9): text
-- instant(3): timestamp(3) with time zone
-- instant(9): text
-- zoned_timestamp(6): timestamp(6) with time zone
-- zoned_timestamp(7): text
CREATE TABLE IF NOT EXISTS "sales"."order lines" ("id" bigint NOT NULL, "line" text NOT NULL, "note" text, "price" numeric(12,2), "_headrace_position" text COLLATE "C", PRIMARY KEY ("id", "line"));
COMMENT ON COLUMN "sales"."order lines"."note" IS E'C:\\ it''s';
COMMENT ON COLUMN "sales"."order lines"."_headrace_position" IS 'Headrace: position of the row''s last change';
COMMENT ON TABLE "sales"."order lines" IS 'it''s the lines';
DELETE FROM "sales"."order lines" WHERE ("_headrace_position" IS NULL OR "_headrace_position" < '01//');
SELECT COUNT(*) FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s LEFT JOIN "sales"."order lines" t ON t."id" = s.c0 AND t."line" = s.c1 WHERE s.l IN ('a1', 'b2') AND s.o = 'p' AND (t."id" IS NULL OR (s.m IS NULL AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p)));
SELECT COUNT(*) FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s JOIN "sales"."order lines" t ON t."id" = s.c0 AND t."line" = s.c1 WHERE s.l IN ('a1', 'b2') AND s.f IS NOT NULL AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p) AND NOT (t."_headrace_position" IS NULL OR t."_headrace_position" < s.f);
ALTER TABLE "sales"."order lines" RENAME COLUMN "note" TO "it's";
CREATE SCHEMA IF NOT EXISTS "a b";
CREATE TABLE IF NOT EXISTS "_headrace_progress" (target text PRIMARY KEY, owner text NOT NULL, batch bigint, source_table text NOT NULL, key_columns text NOT NULL, written_at timestamp with time zone, batch_offsets text, format_version integer);
ALTER TABLE "sales"."order lines" ADD COLUMN IF NOT EXISTS "note" text;
COMMENT ON COLUMN "sales"."order lines"."note" IS 'new';
ALTER TABLE "sales"."bag" ADD COLUMN IF NOT EXISTS "_headrace_position" text COLLATE "C";
ALTER TABLE "sales"."order lines" ALTER COLUMN "note" TYPE text;
DROP TABLE IF EXISTS "sales"."_headrace_stage_a5bf4119bcd06ba8";
CREATE UNLOGGED TABLE "sales"."_headrace_stage_a5bf4119bcd06ba8" (l text, o char(1), p text COLLATE "C", m text, f text COLLATE "C", n bigint, c0 bigint, c1 text, c2 text, c3 numeric(12,2));
DELETE FROM "sales"."order lines" t USING "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2') AND s.o = 'd' AND t."id" = s.c0 AND t."line" = s.c1 AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p);
INSERT INTO "sales"."order lines" AS t ("id", "line", "note", "price", "_headrace_position") SELECT s.c0, s.c1, s.c2, s.c3, s.p FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2') AND s.o <> 'd' AND s.m IS NULL ON CONFLICT ("id", "line") DO UPDATE SET "note" = EXCLUDED."note", "price" = EXCLUDED."price", "_headrace_position" = EXCLUDED."_headrace_position" WHERE (t."_headrace_position" IS NULL OR t."_headrace_position" < EXCLUDED."_headrace_position");
DELETE FROM "sales"."order lines" t USING "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2') AND s.o = 'd' AND t."id" = s.c0 AND t."line" = s.c1 AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p);
INSERT INTO "sales"."order lines" AS t ("id", "line", "note", "price", "_headrace_position") SELECT s.c0, s.c1, s.c2, s.c3, s.p FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2') AND s.o <> 'd' AND s.m IS NULL ON CONFLICT ("id", "line") DO UPDATE SET "note" = EXCLUDED."note", "price" = EXCLUDED."price", "_headrace_position" = EXCLUDED."_headrace_position" WHERE (t."_headrace_position" IS NULL OR t."_headrace_position" < EXCLUDED."_headrace_position");
UPDATE "sales"."order lines" t SET "note" = CASE WHEN s.m IS NULL OR SUBSTR(s.m, 1, 1) = '1' THEN s.c2 ELSE t."note" END, "price" = CASE WHEN s.m IS NULL OR SUBSTR(s.m, 2, 1) = '1' THEN s.c3 ELSE t."price" END, "_headrace_position" = s.p FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2') AND s.o <> 'd' AND s.m IS NOT NULL AND t."id" = s.c0 AND t."line" = s.c1 AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p);
INSERT INTO "sales"."order lines" AS t ("id", "line", "note", "price", "_headrace_position") SELECT s.c0, s.c1, s.c2, s.c3, s.p FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2') AND s.o <> 'd' AND s.m IS NOT NULL ON CONFLICT ("id", "line") DO NOTHING;
CREATE TABLE IF NOT EXISTS "sales"."bag" ("a" real, "b" bytea, "c" json, "_headrace_position" text COLLATE "C");
COMMENT ON COLUMN "sales"."bag"."_headrace_position" IS 'Headrace: position of the row''s last change';
DELETE FROM "sales"."bag" t USING (SELECT t.ctid AS place, g.n, row_number() OVER (PARTITION BY g.whole ORDER BY t."_headrace_position" NULLS FIRST) AS nth FROM "sales"."bag" t JOIN (SELECT ARRAY[s.c0::text, s.c1::text, s.c2::text] AS whole, sum(s.n) AS n FROM "sales"."_headrace_stage_c018019b6a8b01ab" s WHERE s.l IN ('a1', 'b2') AND s.o = 'd' GROUP BY 1) g ON ARRAY[t."a"::text, t."b"::text, t."c"::text] = g.whole) x WHERE t.ctid = x.place AND x.nth <= x.n;
INSERT INTO "sales"."bag" ("a", "b", "c", "_headrace_position") SELECT s.c0, s.c1, s.c2, s.p FROM "sales"."_headrace_stage_c018019b6a8b01ab" s WHERE s.l IN ('a1', 'b2') AND s.o = 'i';
INSERT INTO "sales"."bag" ("a", "b", "c", "_headrace_position") SELECT s.c0, s.c1, s.c2, s.p FROM "sales"."_headrace_stage_c018019b6a8b01ab" s WHERE 1 = 0 AND s.o = 'i';
