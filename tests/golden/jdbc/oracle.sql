-- boolean: NUMBER(1,0)
-- int8: NUMBER(3,0)
-- int16: NUMBER(5,0)
-- int32: NUMBER(10,0)
-- int64: NUMBER(19,0)
-- uint64: NUMBER(20,0)
-- float32: BINARY_FLOAT
-- float64: BINARY_DOUBLE
-- string: CLOB
-- uuid: CHAR(36 CHAR)
-- json: CLOB
-- xml: CLOB
-- decimal: CLOB
-- decimal(10,2): NUMBER(10,2)
-- decimal(38,10): NUMBER(38,10)
-- decimal(66,0): CLOB
-- interval: CLOB
-- nested: CLOB
-- bytes: BLOB
-- date: DATE
-- time(0): CLOB
-- time(3): CLOB
-- time(7): CLOB
-- timestamp(0): TIMESTAMP(0)
-- timestamp(6): TIMESTAMP(6)
-- timestamp(7): TIMESTAMP(7)
-- timestamp(9): TIMESTAMP(9)
-- instant(3): TIMESTAMP(3) WITH TIME ZONE
-- instant(9): TIMESTAMP(9) WITH TIME ZONE
-- zoned_timestamp(6): TIMESTAMP(6) WITH TIME ZONE
-- zoned_timestamp(7): TIMESTAMP(7) WITH TIME ZONE
CREATE TABLE "sales"."order lines" ("id" NUMBER(19,0) NOT NULL, "line" VARCHAR2(40 CHAR) NOT NULL, "note" CLOB, "price" NUMBER(12,2), "_headrace_position" VARCHAR2(255 BYTE), PRIMARY KEY ("id", "line"));
COMMENT ON COLUMN "sales"."order lines"."note" IS 'C:\ it''s';
COMMENT ON TABLE "sales"."order lines" IS 'it''s the lines';
DELETE FROM "sales"."order lines" WHERE ("_headrace_position" IS NULL OR UTL_RAW.CAST_TO_RAW("_headrace_position") < UTL_RAW.CAST_TO_RAW('01//'));
SELECT COUNT(*) FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s LEFT JOIN "sales"."order lines" t ON t."id" = s.c0 AND t."line" = s.c1 WHERE s.l IN ('a1', 'b2') AND s.o = 'p' AND (t."id" IS NULL OR (s.m IS NULL AND (t."_headrace_position" IS NULL OR UTL_RAW.CAST_TO_RAW(t."_headrace_position") < UTL_RAW.CAST_TO_RAW(s.p))));
ALTER TABLE "sales"."order lines" RENAME COLUMN "note" TO "it's";
CREATE TABLE "sales"."_headrace_stage_a5bf4119bcd06ba8" (l VARCHAR(64), o CHAR(1), p VARCHAR2(255 BYTE), m VARCHAR(2), n NUMBER(19,0), c0 NUMBER(19,0), c1 VARCHAR2(40 CHAR), c2 CLOB, c3 NUMBER(12,2));
MERGE INTO "sales"."order lines" t USING (SELECT * FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2')) s ON (t."id" = s.c0 AND t."line" = s.c1) WHEN MATCHED THEN UPDATE SET "note" = s.c2, "price" = s.c3, "_headrace_position" = s.p WHERE (t."_headrace_position" IS NULL OR UTL_RAW.CAST_TO_RAW(t."_headrace_position") < UTL_RAW.CAST_TO_RAW(s.p)) DELETE WHERE s.o = 'd' WHEN NOT MATCHED THEN INSERT ("id", "line", "note", "price", "_headrace_position") VALUES (s.c0, s.c1, s.c2, s.c3, s.p) WHERE s.o <> 'd';
MERGE INTO "sales"."order lines" t USING (SELECT * FROM "sales"."_headrace_stage_a5bf4119bcd06ba8" s WHERE s.l IN ('a1', 'b2')) s ON (t."id" = s.c0 AND t."line" = s.c1) WHEN MATCHED THEN UPDATE SET "note" = CASE WHEN s.m IS NULL OR SUBSTR(s.m, 1, 1) = '1' THEN s.c2 ELSE t."note" END, "price" = CASE WHEN s.m IS NULL OR SUBSTR(s.m, 2, 1) = '1' THEN s.c3 ELSE t."price" END, "_headrace_position" = s.p WHERE (t."_headrace_position" IS NULL OR UTL_RAW.CAST_TO_RAW(t."_headrace_position") < UTL_RAW.CAST_TO_RAW(s.p)) DELETE WHERE s.o = 'd' WHEN NOT MATCHED THEN INSERT ("id", "line", "note", "price", "_headrace_position") VALUES (s.c0, s.c1, s.c2, s.c3, s.p) WHERE s.o <> 'd';
