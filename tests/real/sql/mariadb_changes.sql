INSERT INTO all_types (id, c_tiny, c_tiny_u, c_small, c_small_u, c_medium, c_medium_u, c_int, c_int_u, c_big, c_big_u, c_bool,
  c_bit1, c_bit10, c_bit64, c_dec65, c_dec12, c_dec10_0, c_float, c_double, c_date, c_time, c_time3, c_time6, c_datetime,
  c_datetime3, c_datetime6, c_timestamp, c_timestamp3, c_timestamp6, c_year, c_char, c_varchar, c_latin, c_text, c_binary,
  c_varbinary, c_blob, c_enum, c_set, c_json, c_point, c_polygon, n_int)
  SELECT id + 10, c_tiny, c_tiny_u, c_small, c_small_u, c_medium, c_medium_u, c_int, c_int_u, c_big, c_big_u, c_bool,
  c_bit1, c_bit10, c_bit64, c_dec65, c_dec12, c_dec10_0, c_float, c_double, c_date, c_time, c_time3, c_time6, c_datetime,
  c_datetime3, c_datetime6, c_timestamp, c_timestamp3, c_timestamp6, c_year, c_char, c_varchar, c_latin, c_text, c_binary,
  c_varbinary, c_blob, c_enum, c_set, c_json, c_point, c_polygon, n_int
  FROM all_types WHERE id IN (2, 3);
INSERT INTO all_types SET id = 14, c_float = 16777216, c_double = -0.1, c_time6 = '24:00:00';
UPDATE all_types SET c_varchar = 'changed 😀', c_dec65 = 1.5, c_big_u = 9223372036854775808 WHERE id = 1;
UPDATE all_types SET c_time6 = NULL, c_datetime6 = '1000-01-01 00:00:00.000001' WHERE id = 3;
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
TRUNCATE TABLE trunc_me;
INSERT INTO trunc_me VALUES (2, 'two again'), (3, 'three');
UPDATE trunc_me SET id = 4 WHERE id = 3;
CREATE TABLE late_table (id int PRIMARY KEY, j json, n decimal(9,4) unsigned, e enum('p','q'));
INSERT INTO late_table VALUES (1, '{"late": [1, 2.50]}', 1.5000, 'q'), (2, NULL, NULL, NULL);
INSERT INTO marker VALUES (2, 'end of the changes');
