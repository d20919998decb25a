-- +goose Up
ALTER TABLE nodes ADD COLUMN signed TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE nodes DROP COLUMN signed;
