CREATE TABLE IF NOT EXISTS offsets (
	topic     text    NOT NULL,
	partition integer NOT NULL,
	next      bigint  NOT NULL, -- the offset of the first record that is not stored
	PRIMARY KEY (topic, partition)
);

-- Your own tables, in fact. Nothing here keeps a record from being stored
-- twice: that is what offsets does.
CREATE TABLE IF NOT EXISTS records (
	topic     text    NOT NULL,
	partition integer NOT NULL,
	pos       bigint  NOT NULL,
	key       bytea,
	value     bytea
);
