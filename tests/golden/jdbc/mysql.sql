-- boolean: tinyint(1)
-- int8: tinyint
-- int16: smallint
-- int32: int
-- int64: bigint
-- uint64: bigint unsigned
-- float32: float
-- float64: double
-- string: longtext
-- uuid: longtext
-- json: longtext
-- xml: longtext
-- decimal: longtext
-- decimal(10,2): decimal(10,2)
-- decimal(38,10): decimal(38,10)
-- decimal(66,0): longtext
-- interval: longtext
-- nested: longtext
-- bytes: longblob
-- date: date
-- time(0): time
-- time(3): time(3)
-- time(7): longtext
-- timestamp(0): datetime
-- timestamp(6): datetime(6)
-- timestamp(7): longtext
-- timestamp(9): longtext
-- instant(3): datetime(3)
-- instant(9): longtext
-- zoned_timestamp(6): datetime(6)
-- zoned_timestamp(7): longtext
CREATE TABLE IF NOT EXISTS `sales`.`order lines` (`id` bigint NOT NULL, `line` varchar(40) NOT NULL, `note` longtext NULL COMMENT 'C:\\ it''s', `price` decimal(12,2) NULL, `_headrace_position` varchar(255) character set ascii collate ascii_bin COMMENT 'Headrace: position of the row''s last change', PRIMARY KEY (`id`, `line`)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin COMMENT 'it''s the lines';
DELETE FROM `sales`.`order lines` WHERE (`_headrace_position` IS NULL OR `_headrace_position` < '01//');
SELECT COUNT(*) FROM `sales`.`_headrace_stage_a5bf4119bcd06ba8` s LEFT JOIN `sales`.`order lines` t ON t.`id` = s.c0 AND t.`line` = s.c1 WHERE s.l IN ('a1', 'b2') AND s.o = 'p' AND (t.`id` IS NULL OR (s.m IS NULL AND (t.`_headrace_position` IS NULL OR t.`_headrace_position` < s.p)));
SELECT COUNT(*) FROM `sales`.`_headrace_stage_a5bf4119bcd06ba8` s JOIN `sales`.`order lines` t ON t.`id` = s.c0 AND t.`line` = s.c1 WHERE s.l IN ('a1', 'b2') AND s.f IS NOT NULL AND (t.`_headrace_position` IS NULL OR t.`_headrace_position` < s.p) AND NOT (t.`_headrace_position` IS NULL OR t.`_headrace_position` < s.f);
ALTER TABLE `sales`.`order lines` RENAME COLUMN `note` TO `it's`;
CREATE DATABASE IF NOT EXISTS `a b`;
CREATE TABLE IF NOT EXISTS `_headrace_progress` (target varchar(300) PRIMARY KEY, owner text NOT NULL, batch bigint, source_table text NOT NULL, key_columns text NOT NULL, written_at datetime(6), batch_offsets text, format_version integer) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin;
ALTER TABLE `sales`.`order lines` ADD COLUMN `note` longtext NULL COMMENT 'new';
ALTER TABLE `sales`.`bag` ADD COLUMN `_headrace_position` varchar(255) character set ascii collate ascii_bin NULL, ADD KEY (`_headrace_position`);
ALTER TABLE `sales`.`order lines` MODIFY COLUMN `note` longtext NULL COMMENT 'new';
DROP TABLE IF EXISTS `sales`.`_headrace_stage_a5bf4119bcd06ba8`;
CREATE TABLE `sales`.`_headrace_stage_a5bf4119bcd06ba8` (l varchar(64) character set ascii, o char(1) character set ascii, p varchar(255) character set ascii collate ascii_bin, m varchar(2) character set ascii, f varchar(255) character set ascii collate ascii_bin, n bigint, c0 bigint NULL, c1 varchar(40) NULL, c2 longtext NULL, c3 decimal(12,2) NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin;
DELETE t FROM `sales`.`_headrace_stage_a5bf4119bcd06ba8` s STRAIGHT_JOIN `sales`.`order lines` AS t ON t.`id` = s.c0 AND t.`line` = s.c1 WHERE s.l IN ('a1', 'b2') AND s.o = 'd' AND (t.`_headrace_position` IS NULL OR t.`_headrace_position` < s.p);
INSERT INTO `sales`.`order lines` (`id`, `line`, `note`, `price`, `_headrace_position`) SELECT s.c0, s.c1, s.c2, s.c3, s.p FROM `sales`.`_headrace_stage_a5bf4119bcd06ba8` s WHERE s.l IN ('a1', 'b2') AND s.o <> 'd' ON DUPLICATE KEY UPDATE `sales`.`order lines`.`note` = IF((`sales`.`order lines`.`_headrace_position` IS NULL OR `sales`.`order lines`.`_headrace_position` < s.p), s.c2, `sales`.`order lines`.`note`), `sales`.`order lines`.`price` = IF((`sales`.`order lines`.`_headrace_position` IS NULL OR `sales`.`order lines`.`_headrace_position` < s.p), s.c3, `sales`.`order lines`.`price`), `sales`.`order lines`.`_headrace_position` = IF((`sales`.`order lines`.`_headrace_position` IS NULL OR `sales`.`order lines`.`_headrace_position` < s.p), s.p, `sales`.`order lines`.`_headrace_position`);
DELETE t FROM `sales`.`_headrace_stage_a5bf4119bcd06ba8` s STRAIGHT_JOIN `sales`.`order lines` AS t ON t.`id` = s.c0 AND t.`line` = s.c1 WHERE s.l IN ('a1', 'b2') AND s.o = 'd' AND (t.`_headrace_position` IS NULL OR t.`_headrace_position` < s.p);
INSERT INTO `sales`.`order lines` (`id`, `line`, `note`, `price`, `_headrace_position`) SELECT s.c0, s.c1, s.c2, s.c3, s.p FROM `sales`.`_headrace_stage_a5bf4119bcd06ba8` s WHERE s.l IN ('a1', 'b2') AND s.o <> 'd' ON DUPLICATE KEY UPDATE `sales`.`order lines`.`note` = IF((`sales`.`order lines`.`_headrace_position` IS NULL OR `sales`.`order lines`.`_headrace_position` < s.p), CASE WHEN s.m IS NULL OR SUBSTR(s.m, 1, 1) = '1' THEN s.c2 ELSE `sales`.`order lines`.`note` END, `sales`.`order lines`.`note`), `sales`.`order lines`.`price` = IF((`sales`.`order lines`.`_headrace_position` IS NULL OR `sales`.`order lines`.`_headrace_position` < s.p), CASE WHEN s.m IS NULL OR SUBSTR(s.m, 2, 1) = '1' THEN s.c3 ELSE `sales`.`order lines`.`price` END, `sales`.`order lines`.`price`), `sales`.`order lines`.`_headrace_position` = IF((`sales`.`order lines`.`_headrace_position` IS NULL OR `sales`.`order lines`.`_headrace_position` < s.p), s.p, `sales`.`order lines`.`_headrace_position`);
CREATE TABLE IF NOT EXISTS `sales`.`bag` (`a` float NULL, `b` longblob NULL, `c` longtext NULL, `_headrace_position` varchar(255) character set ascii collate ascii_bin COMMENT 'Headrace: position of the row''s last change', KEY (`_headrace_position`)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin;
UPDATE `sales`.`bag` SET `_headrace_position` = CONCAT('!', UUID()) WHERE `_headrace_position` IS NULL;
DELETE t FROM `sales`.`bag` AS t JOIN (SELECT x.p FROM (SELECT t.`_headrace_position` AS p, g.n, ROW_NUMBER() OVER (PARTITION BY g.whole ORDER BY t.`_headrace_position`) AS nth FROM `sales`.`bag` AS t JOIN (SELECT SHA2(CONCAT_WS(',', IFNULL(HEX(CAST(CAST(s.c0 AS DOUBLE) AS CHAR CHARACTER SET utf8mb4)), '-'), IFNULL(HEX(s.c1), '-'), IFNULL(HEX(CAST(s.c2 AS CHAR CHARACTER SET utf8mb4)), '-')), 256) AS whole, SUM(s.n) AS n FROM `sales`.`_headrace_stage_c018019b6a8b01ab` s WHERE s.l IN ('a1', 'b2') AND s.o = 'd' GROUP BY 1) g ON SHA2(CONCAT_WS(',', IFNULL(HEX(CAST(CAST(t.`a` AS DOUBLE) AS CHAR CHARACTER SET utf8mb4)), '-'), IFNULL(HEX(t.`b`), '-'), IFNULL(HEX(CAST(t.`c` AS CHAR CHARACTER SET utf8mb4)), '-')), 256) = g.whole) x WHERE x.nth <= x.n) y ON t.`_headrace_position` = y.p;
INSERT INTO `sales`.`bag` (`a`, `b`, `c`, `_headrace_position`) SELECT s.c0, s.c1, s.c2, s.p FROM `sales`.`_headrace_stage_c018019b6a8b01ab` s WHERE s.l IN ('a1', 'b2') AND s.o = 'i';
INSERT INTO `sales`.`bag` (`a`, `b`, `c`, `_headrace_position`) SELECT s.c0, s.c1, s.c2, s.p FROM `sales`.`_headrace_stage_c018019b6a8b01ab` s WHERE 1 = 0 AND s.o = 'i';
