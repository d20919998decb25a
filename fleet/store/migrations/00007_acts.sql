-- +goose Up
CREATE TABLE acts (
    seq BIGINT PRIMARY KEY,
    line TEXT NOT NULL
);

-- +goose Down
DROP TABLE acts;
