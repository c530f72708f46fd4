-- boolean: bit
-- int8: smallint
-- int16: smallint
-- int32: int
-- int64: bigint
-- uint64: decimal(20,0)
-- float32: real
-- float64: float(53)
-- string: nvarchar(max)
-- uuid: uniqueidentifier
-- json: nvarchar(max)
-- xml: nvarchar(max)
-- decimal: nvarchar(max)
-- decimal(10,2): decimal(10,2)
-- decimal(38,10): decimal(38,10)
-- decimal(66,0): nvarchar(max)
-- interval: nvarchar(max)
-- nested: nvarchar(max)
-- bytes: varbinary(max)
-- date: date
-- time(0): time(0)
-- time(3): time(3)
-- time(7): time(7)
-- timestamp(0): datetime2(0)
-- timestamp(6): datetime2(6)
-- timestamp(7): datetime2(7)
-- timestamp(9): nvarchar(max)
-- instant(3): datetimeoffset(3)
-- instant(9): nvarchar(max)
-- zoned_timestamp(6): datetimeoffset(6)
-- zoned_timestamp(7): datetimeoffset(7)
CREATE TABLE [sales].[order lines] ([id] bigint NOT NULL, [line] nvarchar(40) COLLATE Latin1_General_BIN2 NOT NULL, [note] nvarchar(max), [price] decimal(12,2), [_headrace_position] varchar(255) COLLATE Latin1_General_BIN2, PRIMARY KEY ([id], [line]));
EXEC sys.sp_addextendedproperty @name = N'MS_Description', @value = N'C:\ it''s', @level0type = N'SCHEMA', @level0name = N'sales', @level1type = N'TABLE', @level1name = N'order lines', @level2type = N'COLUMN', @level2name = N'note';
EXEC sys.sp_addextendedproperty @name = N'MS_Description', @value = N'it''s the lines', @level0type = N'SCHEMA', @level0name = N'sales', @level1type = N'TABLE', @level1name = N'order lines';
DELETE FROM [sales].[order lines] WHERE ([_headrace_position] IS NULL OR [_headrace_position] < N'01//');
SELECT COUNT(*) FROM [sales].[_headrace_stage_a5bf4119bcd06ba8] s LEFT JOIN [sales].[order lines] t ON t.[id] = s.c0 AND t.[line] = s.c1 WHERE s.l IN (N'a1', N'b2') AND s.o = 'p' AND (t.[id] IS NULL OR (s.m IS NULL AND (t.[_headrace_position] IS NULL OR t.[_headrace_position] < s.p)));
EXEC sp_rename N'[sales].[order lines].[note]', N'it''s', 'COLUMN';
CREATE TABLE [sales].[_headrace_stage_a5bf4119bcd06ba8] (l VARCHAR(64), o CHAR(1), p varchar(255) COLLATE Latin1_General_BIN2, m VARCHAR(2), n bigint, c0 bigint, c1 nvarchar(40) COLLATE Latin1_General_BIN2, c2 nvarchar(max), c3 decimal(12,2));
MERGE INTO [sales].[order lines] WITH (HOLDLOCK) AS t USING (SELECT * FROM [sales].[_headrace_stage_a5bf4119bcd06ba8] s WHERE s.l IN (N'a1', N'b2')) AS s ON t.[id] = s.c0 AND t.[line] = s.c1 WHEN MATCHED AND s.o = 'd' AND (t.[_headrace_position] IS NULL OR t.[_headrace_position] < s.p) THEN DELETE WHEN MATCHED AND s.o <> 'd' AND (t.[_headrace_position] IS NULL OR t.[_headrace_position] < s.p) THEN UPDATE SET [note] = s.c2, [price] = s.c3, [_headrace_position] = s.p WHEN NOT MATCHED AND s.o <> 'd' THEN INSERT ([id], [line], [note], [price], [_headrace_position]) VALUES (s.c0, s.c1, s.c2, s.c3, s.p);
MERGE INTO [sales].[order lines] WITH (HOLDLOCK) AS t USING (SELECT * FROM [sales].[_headrace_stage_a5bf4119bcd06ba8] s WHERE s.l IN (N'a1', N'b2')) AS s ON t.[id] = s.c0 AND t.[line] = s.c1 WHEN MATCHED AND s.o = 'd' AND (t.[_headrace_position] IS NULL OR t.[_headrace_position] < s.p) THEN DELETE WHEN MATCHED AND s.o <> 'd' AND (t.[_headrace_position] IS NULL OR t.[_headrace_position] < s.p) THEN UPDATE SET [note] = CASE WHEN s.m IS NULL OR SUBSTRING(s.m, 1, 1) = '1' THEN s.c2 ELSE t.[note] END, [price] = CASE WHEN s.m IS NULL OR SUBSTRING(s.m, 2, 1) = '1' THEN s.c3 ELSE t.[price] END, [_headrace_position] = s.p WHEN NOT MATCHED AND s.o <> 'd' THEN INSERT ([id], [line], [note], [price], [_headrace_position]) VALUES (s.c0, s.c1, s.c2, s.c3, s.p);
