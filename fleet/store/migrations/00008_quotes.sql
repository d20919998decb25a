-- +goose Up
ALTER TABLE nodes ADD COLUMN quote TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE nodes DROP COLUMN quote;
