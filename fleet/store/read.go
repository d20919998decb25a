// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
)

// Node holds what is kept of one node.
type Node struct {
	Name     string
	Rev      int64         // of the change that wrote it
	Key      string        // id of the key that counts; "" before any does
	Grade    spec.KeyGrade // of it
	KeySince time.Time
	Seq      uint64 // of the last report by it
	Boot     string // of that report
	Received time.Time
	Report   string // JSON of the last report that counts
	Signed   string // that report as the node signed it; "" in a write leaves it, and a list has none
	Offered  string // JSON of a report by a key that does not count yet; "" where there is none
	Place    string // that the last report came from; "" where that is not known
	Accepted string // id of a key that an operator named and that has not reported yet
	Quote    string // JSON of what its TPM showed last; "" in a write leaves it
}

// Key is a key that counts or did, and the node that it is of. All but these two are of
// one that does not count any more.
type Key struct {
	ID, Node string
	Seq      uint64        // of its last report
	Counted  time.Duration // how long it did
	GivenUp  bool          // an operator accepted another in its place
}

// Event is something that happened to a node.
type Event struct {
	At   time.Time `json:"at"`
	Node string    `json:"node"`
	What string    `json:"what"`
}

// Slot is one that a node holds.
type Slot struct {
	Group, Node string
	Since       time.Time
	Key         string    // id of the key that proved who took it; "" where nothing did
	Place       string    // that the request for it came from
	Drained     time.Time // when somebody said that the node is drained; zero where nobody has
}

// Proof is the time of the last request for a slot that a node proved.
type Proof struct {
	Node string
	At   time.Time
}

// Since gives each node that was written after a revision, in the order of their
// revisions; all of them for 0.
func (s *Store) Since(ctx context.Context, rev int64, each func(Node)) error {
	return s.each(ctx, func(rows *sql.Rows) error {
		var n Node
		var keySince, received, seq int64
		err := rows.Scan(&n.Name, &n.Rev, &n.Key, &n.Grade, &keySince, &seq, &n.Boot, &received, &n.Report, &n.Offered,
			&n.Place, &n.Accepted, &n.Quote)
		if n.KeySince, n.Received, n.Seq = time.Unix(keySince, 0).UTC(), time.UnixMilli(received).UTC(), uint64(seq); err == nil {
			each(n)
		}
		return err
	}, "SELECT name, rev, key_id, grade, key_since, seq, boot, received, report, offered, place, accepted, quote FROM nodes "+
		"WHERE rev > $1 ORDER BY rev", rev)
}

// Key returns what is kept of a key; without a node where it is nobody's.
func (s *Store) Key(ctx context.Context, id string) (Key, error) {
	k := Key{ID: id}
	var seq, counted, givenUp int64
	err := s.db.QueryRowContext(ctx, "SELECT node, seq, counted, given_up FROM node_keys WHERE id = $1",
		id).Scan(&k.Node, &seq, &counted, &givenUp)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return k, fmt.Errorf("read database: %w", err)
	}
	k.Seq, k.Counted, k.GivenUp = uint64(seq), time.Duration(counted)*time.Second, givenUp != 0
	return k, nil
}

// Reports returns the last report of a node and the one by a key that does not count
// yet, as JSON; "" where there is none.
func (s *Store) Reports(ctx context.Context, node string) (report, offered string, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT report, offered FROM nodes WHERE name = $1", node).Scan(&report, &offered)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", "", fmt.Errorf("read database: %w", err)
	}
	return report, offered, nil
}

// signedAtOnce is how many nodes one question names.
const signedAtOnce = 500

// Signed returns the last reports of nodes as they were signed, by node; those that an earlier
// release wrote are not there.
func (s *Store) Signed(ctx context.Context, nodes []string) (map[string]string, error) {
	all := map[string]string{}
	for some := range slices.Chunk(nodes, signedAtOnce) {
		places, names := make([]string, len(some)), make([]any, len(some))
		for i, name := range some {
			places[i], names[i] = fmt.Sprintf("$%d", i+1), name
		}
		if err := s.each(ctx, func(rows *sql.Rows) error {
			var name, signed string
			err := rows.Scan(&name, &signed)
			all[name] = signed
			return err
		}, "SELECT name, signed FROM nodes WHERE signed <> '' AND name IN ("+strings.Join(places, ", ")+")", names...); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Events returns what happened last to a node, the newest first.
func (s *Store) Events(ctx context.Context, node string, most int) ([]Event, error) {
	return read(ctx, s, func(rows *sql.Rows, e *Event) error {
		var at int64
		err := rows.Scan(&at, &e.Node, &e.What)
		e.At = time.Unix(at, 0).UTC()
		return err
	}, "SELECT at, node, what FROM events WHERE node = $1 ORDER BY id DESC LIMIT $2", node, most)
}

// Slots returns the slots that are held, the oldest first.
func (s *Store) Slots(ctx context.Context) ([]Slot, error) {
	return read(ctx, s, func(rows *sql.Rows, l *Slot) error {
		var since, drained int64
		err := rows.Scan(&l.Group, &l.Node, &since, &l.Key, &l.Place, &drained)
		l.Since = time.Unix(since, 0).UTC()
		if drained > 0 {
			l.Drained = time.Unix(drained, 0).UTC()
		}
		return err
	}, "SELECT slot_group, node, since, key_id, place, drained FROM slots ORDER BY since, slot_group, node")
}

// Proofs returns the proofs of all nodes.
func (s *Store) Proofs(ctx context.Context) ([]Proof, error) {
	return read(ctx, s, func(rows *sql.Rows, p *Proof) error {
		var at int64
		err := rows.Scan(&p.Node, &at)
		p.At = time.Unix(0, at).UTC()
		return err
	}, "SELECT node, at FROM slot_proofs")
}

// read returns the answer to a query, of which one reads a row.
func read[T any](ctx context.Context, s *Store, one func(*sql.Rows, *T) error, query string, args ...any) (all []T, err error) {
	err = s.each(ctx, func(rows *sql.Rows) error {
		var t T
		err := one(rows, &t)
		all = append(all, t)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// each calls one with each row of the answer to a query.
func (s *Store) each(ctx context.Context, one func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err == nil {
		defer rows.Close() // Err says what went wrong
		for err == nil && rows.Next() {
			err = one(rows)
		}
		err = cmp.Or(err, rows.Err())
	}
	return fault.In(err, "read database")
}

// Backup copies the database to a new file while others write.
func (s *Store) Backup(ctx context.Context, to string) error {
	if s.dialect != goose.DialectSQLite3 {
		return cli.WithHint(errors.New("only a file of SQLite is copied"), "pg_dump --format=custom copies PostgreSQL")
	}
	var rev int64
	if err := s.db.QueryRowContext(ctx, "SELECT rev FROM revisions").Scan(&rev); err != nil { // no service ever wrote to it
		return cli.WithHint(fmt.Errorf("back up: %s is not the database of a fleet: %w", s.place, err),
			"--db names the one that the service was started with")
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // SQLite fills an empty file
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	if _, err = s.db.ExecContext(ctx, "VACUUM INTO $1", to); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("back up to %s: %w", to, err), os.Remove(to))
	}
	return durable.SyncDir(filepath.Dir(to))
}

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
		text, _ := json.Marshal(before) // its sum is of that
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
