-- +goose Up
CREATE INDEX node_keys_node ON node_keys (node);

-- +goose Down
DROP INDEX node_keys_node;
