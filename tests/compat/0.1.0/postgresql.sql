CREATE TABLE public._headrace_progress (
    target text NOT NULL,
    owner text NOT NULL,
    batch bigint,
    source_table text NOT NULL,
    key_columns text NOT NULL,
    written_at timestamp with time zone
);
CREATE UNLOGGED TABLE public._headrace_stage_e3b98a4da31a127d (
    l text,
    o character(1),
    p text COLLATE pg_catalog."C",
    m text,
    n bigint,
    c0 integer,
    c1 text,
    c2 text
);
CREATE TABLE public.t (
    id integer NOT NULL,
    a text,
    b text,
    _headrace_position text COLLATE pg_catalog."C"
);
COMMENT ON COLUMN public.t._headrace_position IS 'Headrace: position of the row''s last change';
CREATE TABLE public.u (
    id integer NOT NULL,
    a text,
    _headrace_position text COLLATE pg_catalog."C"
);
COMMENT ON COLUMN public.u._headrace_position IS 'Headrace: position of the row''s last change';
INSERT INTO public._headrace_progress VALUES ('"public"."u"', 'kept/checkpoint', 7, 'db.dbo.u', '"id"', '2026-11-23 01:51:04.945538+00');
INSERT INTO public._headrace_progress VALUES ('"public"."t"', 'kept/checkpoint', 7, 'db.dbo.t', '"id"', '2026-11-23 01:51:05.107428+00');
INSERT INTO public._headrace_stage_e3b98a4da31a127d VALUES ('0c5cf47fc12f44d1a2f9084197bb72d7', 'u', '00000003//', NULL, NULL, 1, 'z', NULL);
INSERT INTO public.t VALUES (1, 'x', NULL, '00000001//');
INSERT INTO public.u VALUES (1, 'y', '00000002//');
ALTER TABLE ONLY public._headrace_progress
    ADD CONSTRAINT _headrace_progress_pkey PRIMARY KEY (target);
ALTER TABLE ONLY public.t
    ADD CONSTRAINT t_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.u
    ADD CONSTRAINT u_pkey PRIMARY KEY (id);
