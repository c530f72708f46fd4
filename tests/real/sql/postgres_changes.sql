INSERT INTO all_types SELECT (t).* FROM (SELECT all_types #= hstore('id', '12') AS t FROM all_types WHERE id = 2) AS copied;
INSERT INTO all_types SELECT (t).* FROM (SELECT all_types #= hstore('id', '13') AS t FROM all_types WHERE id = 3) AS copied;
INSERT INTO all_types (id, c_real, c_double, c_time, c_date, c_ts, c_tstz) VALUES
  (14, 'NaN', 'Infinity', '24:00:00', '1582-10-10', '1582-10-10 10:10:10.123456', '2024-02-29 12:34:56.5+05:30'),
  (15, '-Infinity', 0.1, '12:34:56.1', '0001-01-01', '0001-01-01 00:00:00', '0001-01-01 00:00:00+00');
UPDATE all_types SET c_varchar = 'changed 😀', c_num = -1.25, c_num65_30 = 1.5 WHERE id = 1;
UPDATE all_types SET a_text = '{NULL,"null"}', c_interval = '178 years 11 mons' WHERE id = 3;
BEGIN;
INSERT INTO composite_key VALUES ('c', -9223372036854775808, 'new', 4.00);
UPDATE composite_key SET tenant = 'z' WHERE tenant = 'a' AND seq = 1;
DELETE FROM composite_key WHERE tenant = 'b';
UPDATE composite_key SET val = NULL WHERE tenant = 'a' AND seq = 2;
COMMIT;
BEGIN;
DELETE FROM composite_key WHERE seq > 0;
ROLLBACK;
INSERT INTO null_defaults (id, req) VALUES (3, 33);
UPDATE null_defaults SET s = NULL WHERE id = 2;
UPDATE toasted SET note = 'the large values stay' WHERE id = 1;
UPDATE toasted SET id = 3 WHERE id = 2;
UPDATE toasted SET big_text = 'small now' WHERE id = 3;
TRUNCATE TABLE trunc_me;
INSERT INTO trunc_me VALUES (2, 'two again'), (3, 'three');
UPDATE trunc_me SET id = 4 WHERE id = 3;
CREATE TABLE late_table (id integer PRIMARY KEY, j jsonb, n numeric(9,4), e mood);
INSERT INTO late_table VALUES (1, '{"late": [1, 2.50]}', 1.5000, 'ok'), (2, NULL, NULL, NULL);
INSERT INTO marker VALUES (2, 'end of the changes');
