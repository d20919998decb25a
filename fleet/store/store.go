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
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	_ "modernc.org/sqlite" // the driver "sqlite"
	lite "modernc.org/sqlite/lib"

	"github.com/caisson-os/caisson/internal/cli"
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
	switch {
	case err == nil:
		if err := f.Close(); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
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
		return nil, errors.Join(fmt.Errorf("open database %s: %w", s.place, err), s.db.Close())
	}
	return s, nil
}

// Place names the database for people.
func (s *Store) Place() string { return s.place }

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the tables to what this release knows.
func (s *Store) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
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
