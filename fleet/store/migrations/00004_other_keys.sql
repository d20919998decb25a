-- +goose Up
-- The last number of a key that was taken before this is not known: it is taken for the largest, so that nothing is played back.
ALTER TABLE node_keys ADD COLUMN seq BIGINT NOT NULL DEFAULT 9007199254740991;
ALTER TABLE node_keys ADD COLUMN counted BIGINT NOT NULL DEFAULT 0;
ALTER TABLE node_keys ADD COLUMN given_up BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN place TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN accepted TEXT NOT NULL DEFAULT '';
ALTER TABLE slots ADD COLUMN place TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE slots DROP COLUMN place;
ALTER TABLE nodes DROP COLUMN accepted;
ALTER TABLE nodes DROP COLUMN place;
ALTER TABLE node_keys DROP COLUMN given_up;
ALTER TABLE node_keys DROP COLUMN counted;
ALTER TABLE node_keys DROP COLUMN seq;
