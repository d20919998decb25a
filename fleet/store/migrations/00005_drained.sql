-- +goose Up
ALTER TABLE slots ADD COLUMN drained BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE slots DROP COLUMN drained;
