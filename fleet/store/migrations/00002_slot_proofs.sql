-- +goose Up
CREATE TABLE slot_proofs (
    node TEXT PRIMARY KEY,
    at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE slot_proofs;
