// SPDX-License-Identifier: Apache-2.0

// Package store keeps what a fleet's service receives: in a file of SQLite, or in
// PostgreSQL, by the same queries. What Apply has returned from is on the disk.
//
// One program writes at a time; others read. Rows carry a revision that rises with
// every change, so that a reader asks for what is newer than it knows. Nothing here
// judges: fleet/report does, and fleet/hub calls both.
package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	_ "modernc.org/sqlite" // the driver "sqlite"
	lite "modernc.org/sqlite/lib"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// Store is an open database.
type Store struct {
	db      *sql.DB
	dialect goose.Dialect
	place   string    // a file of SQLite, or the URL of PostgreSQL without its password
	lock    *os.File  // of a writer to SQLite
	writer  *sql.Conn // every write goes through it; nil for a reader
}

// ErrTaken is returned where another program writes.
var ErrTaken = errors.New("another instance writes to this database")

// Existing opens a database that is there: where Open makes the file, it fails.
func Existing(ctx context.Context, name string) (*Store, error) {
	if file, ok := strings.CutPrefix(name, "sqlite:"); ok && file != "" {
		if _, err := os.Stat(file); err != nil {
			return nil, cli.WithHint(fmt.Errorf("open database: %w", err), "--db names the one that the service was started with")
		}
	}
	return Open(ctx, name)
}

// Open opens a database for reading: sqlite:FILE or postgres://….
func Open(ctx context.Context, name string) (*Store, error) {
	file, isFile := strings.CutPrefix(name, "sqlite:")
	switch {
	case isFile && file != "":
		return openSQLite(ctx, file)
	case strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://"):
		return openPostgres(ctx, name)
	}
	return nil, cli.Usage("sqlite:FILE or postgres://USER@HOST/NAME", "%q names no database", name)
}

func openSQLite(ctx context.Context, file string) (*Store, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if err := ownDatabase(abs); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	options := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)",
		"foreign_keys(ON)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: abs}).EscapedPath()+"?"+options.Encode())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return ready(ctx, &Store{db: db, dialect: goose.DialectSQLite3, place: abs})
}

// ownDatabase makes a file of SQLite where there is none, and refuses one that other users
// can read or put in its place: it says whose keys count.
func ownDatabase(file string) error {
	f, err := ownfiles.Create(file) // SQLite's own files have its mode
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := ownfiles.CheckLinked(file); err != nil {
		return err
	}
	at, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	for _, beside := range []string{at + "-wal", at + "-shm", at + "-journal", file + ".lock"} { // SQLite takes what they hold
		if err := ownfiles.CheckLinked(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func openPostgres(ctx context.Context, name string) (*Store, error) {
	u, err := url.Parse(name)
	if err != nil {
		return nil, errors.New("open database: the name is not a URL") // it may hold a password
	}
	db, err := sql.Open("pgx", name)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", u.Redacted(), err)
	}
	return ready(ctx, &Store{db: db, dialect: goose.DialectPostgres, place: u.Redacted()})
}

func ready(ctx context.Context, s *Store) (*Store, error) {
	s.db.SetMaxOpenConns(8)
	if err := s.db.PingContext(ctx); err != nil {
		err = fmt.Errorf("open database %s: %w", s.place, err)
		return nil, errors.Join(cli.WithHint(err, "is the database of --db running, and may its user open it?"), s.db.Close())
	}
	return s, nil
}

// Place names the database for people.
func (s *Store) Place() string { return s.place }

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the tables to what this release knows.
func (s *Store) migrate(ctx context.Context) error {
	files, _ := fs.Sub(migrations, "migrations") // the name is one of a path
	p, err := goose.NewProvider(s.dialect, s.db, files)
	if err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	now, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	if all := p.ListSources(); now > all[len(all)-1].Version {
		return cli.WithHint(fmt.Errorf("database %s was made by a %w", s.place, errLater), "run that release, or restore the backup")
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	return nil
}

// Close closes the database and lets another program write.
func (s *Store) Close() error {
	s.Release()
	return s.db.Close()
}

var errLater = errors.New("later release")

// Lasts reports whether an error is one that no waiting mends: somebody has to put the
// database right. All others are those of one that is away, restarts, is full or locked,
// or follows another server until it takes its place.
func Lasts(err error) bool {
	var file *sqlite.Error
	var server *pgconn.PgError
	switch {
	case errors.Is(err, errLater):
		return true
	case errors.As(err, &file):
		return slices.Contains([]int{lite.SQLITE_READONLY, lite.SQLITE_CORRUPT, lite.SQLITE_NOTADB}, file.Code()&0xff)
	case errors.As(err, &server) && len(server.Code) == 5:
		// Who may log in; which database; tables, and the right to them.
		return slices.Contains([]string{"28", "3D", "42"}, server.Code[:2])
	}
	return false
}

// advisory is the lock of a writer in PostgreSQL, see pg_try_advisory_lock.
const advisory = 0x6361697373 // "caiss"

// Write makes this program the writer, [ErrTaken] where there is another, and brings
// the tables up to date. It is so until Release, or until its connection is lost: then
// each Apply is an error.
func (s *Store) Write(ctx context.Context) (err error) {
	if s.writer != nil {
		return nil
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("write to database %s: %w", s.place, err)
	}
	s.writer = conn
	defer func() {
		if err != nil {
			s.Release()
		}
	}()
	if err := s.take(ctx, conn); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	// It may be locked, be full, or be a copy that only follows another server.
	if _, err := conn.ExecContext(ctx, "UPDATE revisions SET rev = rev WHERE one = 1"); err != nil {
		return fmt.Errorf("write to database %s: %w", s.place, err)
	}
	return nil
}

// Holds is an error where this program is not the writer any more.
func (s *Store) Holds(ctx context.Context) error {
	if s.writer == nil {
		return errReader
	}
	var rev int64
	return fault.In(s.writer.QueryRowContext(ctx, "SELECT rev FROM revisions").Scan(&rev), "write to database %s", s.place)
}

// Release lets another program write, and this one again after another Write.
func (s *Store) Release() {
	if s.writer == nil {
		return
	}
	// The connection is ended, not kept for others: PostgreSQL's lock lasts as long.
	_ = s.writer.Raw(func(any) error { return driver.ErrBadConn }) // it may have ended by itself
	_ = s.writer.Close()                                           // the same
	if s.lock != nil {
		_ = s.lock.Close() // nothing was written to it
	}
	s.writer, s.lock = nil, nil
}

var errReader = errors.New("write to the database: it was opened for reading")

// session holds a writer's settings of PostgreSQL, whatever the server is set to.
var session = []string{
	"SET synchronous_commit = on", // what is acknowledged is on the disk
	// A writer whose machine is gone without a word keeps its lock for half a minute,
	// not for hours. Over a socket of the same machine this sets nothing.
	"SET tcp_keepalives_idle = 15", "SET tcp_keepalives_interval = 5", "SET tcp_keepalives_count = 3",
}

func (s *Store) take(ctx context.Context, conn *sql.Conn) error {
	if s.dialect == goose.DialectPostgres {
		var taken bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(advisory)).Scan(&taken); err != nil {
			return fmt.Errorf("write to database %s: %w", s.place, err)
		}
		if !taken {
			return ErrTaken
		}
		for _, set := range session {
			if _, err := conn.ExecContext(ctx, set); err != nil {
				return fmt.Errorf("write to database %s: %w", s.place, err)
			}
		}
		return nil
	}
	f, err := os.OpenFile(s.place+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("write to database %s: %w", s.place, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrTaken
		}
		return fmt.Errorf("write to database %s: %w", s.place, err)
	}
	s.lock = f
	return nil
}

// Change holds what is written in one transaction.
type Change struct {
	Nodes  []Node
	Keys   []Key
	Ended  []Key // by an operator's word: all other keys of their nodes
	Events []Event
	Taken  []Slot
	Freed  []Slot
	Drains []Slot // whose nodes are drained
	Proofs []Proof
	Acts   []audit.Row // of people and tokens, not chained yet
}

// Apply writes a change, all of it or nothing, and returns when it is on the disk. It
// gives the nodes their revisions.
func (s *Store) Apply(ctx context.Context, c Change) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error { return apply(ctx, tx, c) })
}

// inTransaction has all of what do writes be on the disk, or nothing.
func (s *Store) inTransaction(ctx context.Context, do func(*sql.Tx) error) error {
	if s.writer == nil {
		return errReader
	}
	tx, err := s.writer.BeginTx(ctx, nil)
	if err == nil {
		if err = do(tx); err != nil {
			err = errors.Join(err, tx.Rollback())
		} else {
			err = tx.Commit()
		}
	}
	return fault.In(err, "write to database")
}

func apply(ctx context.Context, tx *sql.Tx, c Change) error {
	err := errors.Join(applyNodes(ctx, tx, c.Nodes), applyActs(ctx, tx, c.Acts))
	do := func(query string, args ...any) { // until something fails
		if err == nil {
			_, err = tx.ExecContext(ctx, query, args...)
		}
	}
	for _, k := range c.Keys {
		do("INSERT INTO node_keys (id, node, seq, counted) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE SET "+
			"seq = excluded.seq, counted = excluded.counted WHERE node_keys.node = excluded.node",
			k.ID, k.Node, int64(k.Seq), int64(k.Counted/time.Second))
	}
	for _, k := range c.Ended {
		do("UPDATE node_keys SET given_up = CASE WHEN id = $1 THEN 0 ELSE 1 END WHERE node = $2", k.ID, k.Node)
	}
	var last int64
	if len(c.Events) > 0 && err == nil {
		err = tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM events").Scan(&last)
	}
	for i, e := range c.Events {
		do("INSERT INTO events (id, at, node, what) VALUES ($1, $2, $3, $4)", last+int64(i)+1, e.At.Unix(), e.Node, e.What)
	}
	for _, l := range c.Freed {
		do("DELETE FROM slots WHERE slot_group = $1 AND node = $2", l.Group, l.Node)
	}
	for _, l := range c.Drains {
		do("UPDATE slots SET drained = $1 WHERE slot_group = $2 AND node = $3", l.Drained.Unix(), l.Group, l.Node)
	}
	for _, p := range c.Proofs {
		do("INSERT INTO slot_proofs (node, at) VALUES ($1, $2) ON CONFLICT (node) DO UPDATE SET at = excluded.at",
			p.Node, p.At.UnixNano())
	}
	for _, l := range c.Taken {
		do("INSERT INTO slots (slot_group, node, since, key_id, place) VALUES ($1, $2, $3, $4, $5)", l.Group,
			l.Node, l.Since.Unix(), l.Key, l.Place)
	}
	return err
}

const upsert = `INSERT INTO nodes (name, rev, key_id, grade, key_since, seq, boot, received, report, offered, place, accepted, signed,
quote) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (name) DO UPDATE SET rev = excluded.rev, key_id = excluded.key_id, grade = excluded.grade, key_since = excluded.key_since,
seq = excluded.seq, boot = excluded.boot, received = excluded.received, report = excluded.report, offered = excluded.offered,
place = excluded.place, accepted = excluded.accepted,
signed = CASE WHEN excluded.signed = '' THEN nodes.signed ELSE excluded.signed END,
quote = CASE WHEN excluded.quote = '' THEN nodes.quote ELSE excluded.quote END`

func applyNodes(ctx context.Context, tx *sql.Tx, nodes []Node) error {
	if len(nodes) == 0 {
		return nil
	}
	var rev int64
	if err := tx.QueryRowContext(ctx, "UPDATE revisions SET rev = rev + 1 WHERE one = 1 RETURNING rev").Scan(&rev); err != nil {
		return err
	}
	put, err := tx.PrepareContext(ctx, upsert)
	if err != nil {
		return err
	}
	defer put.Close() // the transaction ends it
	for i := range nodes {
		n := &nodes[i]
		n.Rev = rev
		if _, err := put.ExecContext(ctx, n.Name, rev, n.Key, string(n.Grade), n.KeySince.Unix(), int64(n.Seq), n.Boot,
			n.Received.UnixMilli(), n.Report, n.Offered, n.Place, n.Accepted, n.Signed, n.Quote); err != nil {
			return err
		}
	}
	return nil
}

// Prune forgets events from before a time.
func (s *Store) Prune(ctx context.Context, before int64) error {
	if s.writer == nil {
		return nil
	}
	if _, err := s.writer.ExecContext(ctx, "DELETE FROM events WHERE at < $1", before); err != nil {
		return fmt.Errorf("prune the history: %w", err)
	}
	return nil
}

// Forget removes all that is known of nodes, their keys included, or nothing.
func (s *Store) Forget(ctx context.Context, nodes []string) error {
	return s.inTransaction(ctx, func(tx *sql.Tx) error {
		for _, name := range nodes {
			for _, query := range []string{"DELETE FROM nodes WHERE name = $1", "DELETE FROM node_keys WHERE node = $1",
				"DELETE FROM events WHERE node = $1",
				"DELETE FROM slots WHERE node = $1", "DELETE FROM slot_proofs WHERE node = $1"} {
				if _, err := tx.ExecContext(ctx, query, name); err != nil {
					return fmt.Errorf("forget node %s: %w", name, err)
				}
			}
		}
		return nil
	})
}
