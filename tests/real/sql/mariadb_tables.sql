CREATE TABLE all_types (
  id int PRIMARY KEY,
  c_tiny tinyint, c_tiny_u tinyint unsigned, c_small smallint, c_small_u smallint unsigned,
  c_medium mediumint, c_medium_u mediumint unsigned, c_int int, c_int_u int unsigned,
  c_big bigint, c_big_u bigint unsigned, c_bool boolean,
  c_bit1 bit(1), c_bit10 bit(10), c_bit64 bit(64),
  c_dec65 decimal(65,30), c_dec12 decimal(12,2), c_dec10_0 decimal(10,0),
  c_float float, c_double double,
  c_date date, c_time time, c_time3 time(3), c_time6 time(6),
  c_datetime datetime, c_datetime3 datetime(3), c_datetime6 datetime(6),
  c_timestamp timestamp NULL, c_timestamp3 timestamp(3) NULL, c_timestamp6 timestamp(6) NULL, c_year year,
  c_char char(10), c_varchar varchar(200), c_latin varchar(50) CHARACTER SET latin1, c_text text,
  c_binary binary(8), c_varbinary varbinary(100), c_blob blob,
  c_enum enum('small','medium','lar''ge','é'), c_set set('a','b','c d','é'), c_json json,
  c_point point, c_polygon polygon,
  c_generated bigint GENERATED ALWAYS AS (c_int * 2) VIRTUAL,
  n_int int NOT NULL DEFAULT 7
);
INSERT INTO all_types SET id = 1;
INSERT INTO all_types SET id = 2, c_tiny = 127, c_tiny_u = 255, c_small = 32767, c_small_u = 65535, c_medium = 8388607,
  c_medium_u = 16777215, c_int = 2147483647, c_int_u = 4294967295, c_big = 9223372036854775807,
  c_big_u = 18446744073709551615, c_bool = true, c_bit1 = b'1', c_bit10 = b'1000000001', c_bit64 = b'1111',
  c_dec65 = 99999999999999999999999999999999999.999999999999999999999999999999, c_dec12 = 9999999999.99,
  c_dec10_0 = 9999999999, c_float = 1.5, c_double = 1.7976931348623157e308, c_date = '9999-12-31',
  c_time = '838:59:59', c_time3 = '838:59:59.999', c_time6 = '838:59:59.999999', c_datetime = '9999-12-31 23:59:59',
  c_datetime3 = '9999-12-31 23:59:59.999', c_datetime6 = '9999-12-31 23:59:59.999999',
  c_timestamp = '2038-01-19 03:14:07', c_timestamp3 = '2038-01-19 03:14:07.999',
  c_timestamp6 = '2038-01-19 03:14:07.999999', c_year = 2155, c_char = 'char', c_varchar = 'emoji 😀 "d" \'s\' \\ back',
  c_latin = 'ÿ € é', c_text = 'tab\tline\nend', c_binary = x'00ff10', c_varbinary = x'deadbeef', c_blob = x'00',
  c_enum = 'lar''ge', c_set = 'a,é', c_json = '{"b": 1.10, "a": [null, true, "😀"], "n": 12345678901234567890.123}',
  c_point = ST_GeomFromText('POINT(1.25 -2.5)', 4326), c_polygon = ST_GeomFromText('POLYGON((0 0,10 0,10 10,0 0))');
INSERT INTO all_types SET id = 3, c_tiny = -128, c_small = -32768, c_medium = -8388608, c_int = -2147483648,
  c_big = -9223372036854775808, c_big_u = 0, c_bool = 0, c_bit1 = b'0', c_bit10 = b'0', c_bit64 = b'0',
  c_dec65 = -0.000000000000000000000000000001, c_dec12 = -0.01, c_dec10_0 = 0, c_float = -0.25, c_double = 5e-324,
  c_date = '1000-01-01', c_time = '-838:59:59', c_time3 = '-00:00:00.001', c_time6 = '-12:34:56.654321',
  c_datetime = '1969-12-31 23:59:59', c_datetime3 = '1969-12-31 23:59:59.999', c_datetime6 = '1969-12-31 23:59:59.999999',
  c_timestamp = '1970-01-01 00:00:01', c_timestamp3 = '1970-01-01 00:00:01.001', c_timestamp6 = '1970-01-01 00:00:01.000001',
  c_year = 1901, c_char = '', c_varchar = '', c_latin = '', c_text = 'NULL', c_binary = '', c_varbinary = '', c_blob = '',
  c_set = '', c_json = '[]';
CREATE TABLE composite_key (
  tenant varchar(20), seq bigint, val varchar(50), d decimal(12,2), PRIMARY KEY (seq, tenant)
);
INSERT INTO composite_key VALUES ('a', 1, 'a1', 1.10), ('a', 2, 'a2', 2.00), ('b', 1, 'b1', -3.00);
CREATE TABLE null_defaults (
  id int PRIMARY KEY, n int DEFAULT 5, s varchar(10) DEFAULT 'dflt', d decimal(6,2) DEFAULT 1.25,
  dt datetime DEFAULT '2020-01-01 00:00:00', b tinyint(1) DEFAULT 1, req int NOT NULL
);
INSERT INTO null_defaults VALUES (1, NULL, NULL, NULL, NULL, NULL, 11), (2, 0, '', 0, '2024-01-01 00:00:00', 0, 22);
CREATE TABLE trunc_me (id int PRIMARY KEY, v varchar(20));
INSERT INTO trunc_me VALUES (1, 'one'), (2, 'two');
CREATE TABLE marker (id int PRIMARY KEY, note varchar(50));
INSERT INTO marker VALUES (1, 'end of the snapshot');
