CREATE EXTENSION IF NOT EXISTS hstore;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'x,y');
CREATE TABLE all_types (
  id integer PRIMARY KEY,
  c_smallint smallint, c_int integer, c_bigint bigint, c_oid oid,
  c_num numeric, c_num12_2 numeric(12,2), c_num65_30 numeric(65,30), c_real real, c_double double precision,
  c_money money, c_bool boolean, c_char character(10), c_varchar varchar(100), c_text text, c_bytea bytea,
  c_date date, c_time time, c_time0 time(0), c_time3 time(3), c_timetz timetz,
  c_ts timestamp, c_ts0 timestamp(0), c_ts3 timestamp(3), c_tstz timestamptz, c_interval interval,
  c_uuid uuid, c_json json, c_jsonb jsonb, c_xml xml, c_inet inet, c_cidr cidr, c_macaddr macaddr,
  c_bit1 bit(1), c_bit10 bit(10), c_varbit varbit,
  a_int integer[], a_text text[], a_num numeric(10,3)[], a_bool boolean[], a_ts timestamp[], a_date date[], a_uuid uuid[],
  c_enum mood, c_hstore hstore, c_int4range int4range, c_point point,
  n_int integer NOT NULL DEFAULT 7
);
INSERT INTO all_types (id) VALUES (1);
INSERT INTO all_types VALUES (2, 32767, 2147483647, 9223372036854775807, 4294967295,
  123456789012345678901234567890.123456789012345678901234567891, 9999999999.99,
  99999999999999999999999999999999999.999999999999999999999999999999, 3.4028235e38, 1.7976931348623157e308,
  1234.5, true, 'çé😀 end', 'emoji 😀 "d" ''s'' \ back', E'tab\tline\nend \\N', '\x00ff10207f80deadbeef',
  '9999-12-31', '23:59:59.999999', '23:59:59', '23:59:59.999', '23:59:59.999999+05:30',
  '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.999999+00',
  '1 year 2 mons 3 days 04:05:06.789', '123e4567-e89b-12d3-a456-426655440000', '{"b": 1.10,  "a": [null, true, "😀"], "b": 2}',
  '{"n": 12345678901234567890.123, "a": 1.10}', '<r a="1">t&amp;é</r>', '192.168.1.5/24', '10.1.0.0/16', '08:00:2b:01:02:03',
  B'1', B'1000000001', B'1011', '{1,NULL,-2147483648,2147483647}', '{a,"","NULL",NULL,"c,d","q\"uote","back\\slash",😀}',
  '{1.500,NULL,-0.001}', '{t,f,NULL}', '{"2024-01-01 00:00:00.123456","1969-12-31 23:59:59"}', '{2024-02-29,1969-12-31}',
  '{123e4567-e89b-12d3-a456-426655440000}', 'x,y', '"a"=>"1", "b"=>NULL', '[1,10)', '(1.25,-2.5)', 1);
INSERT INTO all_types VALUES (3, -32768, -2147483648, -9223372036854775808, 0, -0.00000000000000000001, -0.01,
  0.000000000000000000000000000001, '-0', 5e-324, -0.01, false, '', '', '', '',
  '1969-12-31', '00:00:00.000001', '00:00:00', '00:00:00.001', '00:00:00+00', '1969-12-31 23:59:59.999999',
  '1969-12-31 23:59:59', '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.999999+00', '-00:00:00.000001',
  '00000000-0000-0000-0000-000000000000', '0', '{}', '', '::1', '0.0.0.0/0', '00:00:00:00:00:00', B'0', B'0000000001', B'0',
  '{}', '{}', '{}', '{}', '{}', '{}', '{}', 'sad', '', 'empty', '(0,0)', -2147483648);
CREATE TABLE composite_key (
  tenant varchar(20), seq bigint, val varchar(50), d numeric(12,2), PRIMARY KEY (seq, tenant)
);
INSERT INTO composite_key VALUES ('a', 1, 'a1', 1.10), ('a', 2, 'a2', 2.00), ('b', 1, 'b1', -3.00);
CREATE TABLE null_defaults (
  id integer PRIMARY KEY, n integer DEFAULT 5, s varchar(10) DEFAULT 'dflt', d numeric(6,2) DEFAULT 1.25,
  dt timestamp DEFAULT '2020-01-01 00:00:00', b boolean DEFAULT true, req integer NOT NULL
);
INSERT INTO null_defaults VALUES (1, NULL, NULL, NULL, NULL, NULL, 11), (2, 0, '', 0, '2024-01-01 00:00:00', false, 22);
CREATE TABLE toasted (id integer PRIMARY KEY, note text, big_text text, big_bytea bytea, big_json json, big_array text[]);
INSERT INTO toasted SELECT 1, 'first', big, convert_to(big, 'UTF8'), to_json(big), ARRAY[big]
  FROM (SELECT string_agg(md5(n::text), '') AS big FROM generate_series(1, 400) AS n) AS made;
INSERT INTO toasted SELECT 2, 'moves', big_text, big_bytea, big_json, big_array FROM toasted WHERE id = 1;
CREATE TABLE trunc_me (id integer PRIMARY KEY, v varchar(20));
INSERT INTO trunc_me VALUES (1, 'one'), (2, 'two');
CREATE TABLE marker (id integer PRIMARY KEY, note varchar(50));
INSERT INTO marker VALUES (1, 'end of the snapshot');
CREATE PUBLICATION live FOR ALL TABLES;
