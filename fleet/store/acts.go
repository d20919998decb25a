// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/fleet/audit"
)

// applyActs adds rows to the end of the log. They are kept as the lines that their sums are of.
func applyActs(ctx context.Context, tx *sql.Tx, acts []audit.Row) error {
	if len(acts) == 0 {
		return nil
	}
	var before audit.Row
	var line string
	switch err := tx.QueryRowContext(ctx, "SELECT line FROM acts ORDER BY seq DESC LIMIT 1").Scan(&line); {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal([]byte(line), &before); err != nil {
			return fmt.Errorf("audit log: its last row: %w", err)
		}
	}
	for _, act := range acts {
		before = act.Chain(before)
		text, err := json.Marshal(before)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO acts (seq, line) VALUES ($1, $2)", before.Seq, string(text)); err != nil {
			return err
		}
	}
	return nil
}

// Acts returns rows of the log after one of them, the oldest first, at most so many.
func (s *Store) Acts(ctx context.Context, after int64, most int) ([]audit.Row, error) {
	return read(ctx, s, func(rows *sql.Rows, r *audit.Row) error {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(line), r); err != nil {
			return fmt.Errorf("%w: a row cannot be read: %w", audit.ErrBroken, err)
		}
		return nil
	}, "SELECT line FROM acts WHERE seq > $1 ORDER BY seq LIMIT $2", after, most)
}

// ActsBefore returns rows of the log before one of them, the newest first, at most so many. One that
// cannot be read has its number alone.
func (s *Store) ActsBefore(ctx context.Context, before int64, most int) ([]audit.Row, error) {
	return read(ctx, s, func(rows *sql.Rows, r *audit.Row) error {
		var seq int64
		var line string
		if err := rows.Scan(&seq, &line); err != nil {
			return err
		}
		if json.Unmarshal([]byte(line), r) != nil {
			*r = audit.Row{Seq: seq}
		}
		return nil
	}, "SELECT seq, line FROM acts WHERE seq < $1 ORDER BY seq DESC LIMIT $2", before, most)
}

// LastAct returns the number of the log's last row, 0 for none.
func (s *Store) LastAct(ctx context.Context) (seq int64, err error) {
	if err := s.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(seq), 0) FROM acts").Scan(&seq); err != nil {
		return 0, fmt.Errorf("read database: %w", err)
	}
	return seq, nil
}
