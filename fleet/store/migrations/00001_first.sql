-- +goose Up
CREATE TABLE nodes (
    name TEXT PRIMARY KEY,
    rev BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    grade TEXT NOT NULL,
    key_since BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    boot TEXT NOT NULL,
    received BIGINT NOT NULL,
    report TEXT NOT NULL,
    offered TEXT NOT NULL
);
CREATE INDEX nodes_rev ON nodes (rev);
CREATE TABLE node_keys (
    id TEXT PRIMARY KEY,
    node TEXT NOT NULL
);
CREATE TABLE events (
    id BIGINT PRIMARY KEY,
    at BIGINT NOT NULL,
    node TEXT NOT NULL,
    what TEXT NOT NULL
);
CREATE INDEX events_node ON events (node, id);
CREATE TABLE slots (
    slot_group TEXT NOT NULL,
    node TEXT NOT NULL,
    since BIGINT NOT NULL,
    key_id TEXT NOT NULL,
    PRIMARY KEY (slot_group, node)
);
CREATE TABLE revisions (
    one BIGINT PRIMARY KEY,
    rev BIGINT NOT NULL
);
INSERT INTO revisions (one, rev) VALUES (1, 0);

-- +goose Down
DROP TABLE revisions;
DROP TABLE slots;
DROP TABLE events;
DROP TABLE node_keys;
DROP TABLE nodes;
