-- boolean: BOOLEAN
-- int8: SMALLINT
-- int16: SMALLINT
-- int32: INTEGER
-- int64: BIGINT
-- uint64: DECIMAL(20,0)
-- float32: REAL
-- float64: DOUBLE
-- string: CLOB(2147483647)
-- uuid: CHAR(36)
-- json: CLOB(2147483647)
-- xml: CLOB(2147483647)
-- decimal: CLOB(2147483647)
-- decimal(10,2): DECIMAL(10,2)
-- decimal(38,10): CLOB(2147483647)
-- decimal(66,0): CLOB(2147483647)
-- interval: CLOB(2147483647)
-- nested: CLOB(2147483647)
-- bytes: BLOB(2147483647)
-- date: DATE
-- time(0): CLOB(2147483647)
-- time(3): CLOB(2147483647)
-- time(7): CLOB(2147483647)
-- timestamp(0): TIMESTAMP(0)
-- timestamp(6): TIMESTAMP(6)
-- timestamp(7): TIMESTAMP(7)
-- timestamp(9): TIMESTAMP(9)
-- instant(3): TIMESTAMP(3)
-- instant(9): TIMESTAMP(9)
-- zoned_timestamp(6): TIMESTAMP(6)
-- zoned_timestamp(7): TIMESTAMP(7)
CREATE TABLE "sales"."order lines" ("id" BIGINT NOT NULL, "line" VARCHAR(40 CODEUNITS32) NOT NULL, "note" CLOB(2147483647), "price" DECIMAL(12,2), "_headrace_position" VARCHAR(255) FOR BIT DATA, PRIMARY KEY ("id", "line"));
COMMENT ON COLUMN "sales"."order lines"."note" IS 'C:\ it''s';
COMMENT ON TABLE "sales"."order lines" IS 'it''s the lines';
DELETE FROM "sales"."order lines" WHERE ("_headrace_position" IS NULL OR "_headrace_position" < '01//');
SELECT COUNT(*) FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s LEFT JOIN "sales"."order lines" t ON t."id" = s.c0 AND t."line" = s.c1 WHERE s.l IN ('a1', 'b2') AND s.o = 'p' AND (t."id" IS NULL OR (s.m IS NULL AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p)));
ALTER TABLE "sales"."order lines" RENAME COLUMN "note" TO "it's";
CREATE TABLE "sales"."_headrace_stage_a5bf4119bcd06ba8" (l VARCHAR(64), o CHAR(1), p VARCHAR(255) FOR BIT DATA, m VARCHAR(2), n BIGINT, c0 BIGINT, c1 VARCHAR(40 CODEUNITS32), c2 CLOB(2147483647), c3 DECIMAL(12,2));
MERGE INTO "sales"."order lines" AS t USING (SELECT * FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2')) AS s ON t."id" = s.c0 AND t."line" = s.c1 WHEN MATCHED AND s.o = 'd' AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p) THEN DELETE WHEN MATCHED AND s.o <> 'd' AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p) THEN UPDATE SET "note" = s.c2, "price" = s.c3, "_headrace_position" = s.p WHEN NOT MATCHED AND s.o <> 'd' THEN INSERT ("id", "line", "note", "price", "_headrace_position") VALUES (s.c0, s.c1, s.c2, s.c3, s.p) ELSE IGNORE;
MERGE INTO "sales"."order lines" AS t USING (SELECT * FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2')) AS s ON t."id" = s.c0 AND t."line" = s.c1 WHEN MATCHED AND s.o = 'd' AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p) THEN DELETE WHEN MATCHED AND s.o <> 'd' AND (t."_headrace_position" IS NULL OR t."_headrace_position" < s.p) THEN UPDATE SET "note" = CASE WHEN s.m IS NULL OR SUBSTR(s.m, 1, 1) = '1' THEN s.c2 ELSE t."note" END, "price" = CASE WHEN s.m IS NULL OR SUBSTR(s.m, 2, 1) = '1' THEN s.c3 ELSE t."price" END, "_headrace_position" = s.p WHEN NOT MATCHED AND s.o <> 'd' THEN INSERT ("id", "line", "note", "price", "_headrace_position") VALUES (s.c0, s.c1, s.c2, s.c3, s.p) ELSE IGNORE;
