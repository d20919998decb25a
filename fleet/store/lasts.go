// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	lite "modernc.org/sqlite/lib"
)

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
