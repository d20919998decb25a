// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/caisson-os/caisson/internal/cli"
)

const (
	lockName = "secrets.lock"
	lockKind = "SecretsLock"
	maxLock  = 256 << 20
)

// Lock holds what was sealed: secrets.lock beside the site.
type Lock struct {
	Key  string // id of the key by which values are compared
	rows map[rowKey]Row
}

type rowKey struct{ node, name string }

// Row is one secret as it was sealed to one node.
type Row struct {
	Node      string `json:"node"`
	Name      string `json:"name"`
	Recipient string `json:"recipient"`
	Source    string `json:"source,omitempty"` // digest of the encrypted file that the value was in
	MAC       string `json:"mac"`              // HMAC-SHA256 of name and value
	Sealed    string `json:"sealed"`           // as the overlay has it
	Bound     string `json:"bound,omitempty"`  // HMAC-SHA256 of the rest of the row; one without is sealed again
}

// lockFile is the document of secrets.lock.
type lockFile struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Key        string `json:"key,omitempty"`
	Secrets    []Row  `json:"secrets"`
}

func readLock(dir string) (*Lock, []byte, error) {
	var file lockFile
	data, err := readRows(filepath.Join(dir, lockName), lockKind, maxLock, &file)
	l := &Lock{Key: file.Key, rows: map[rowKey]Row{}}
	for _, row := range file.Secrets {
		at := rowKey{row.Node, row.Name}
		if _, twice := l.rows[at]; twice {
			return nil, nil, cli.WithHint(fmt.Errorf("read %s: secret %.80q of node %.80q has two rows", filepath.Join(dir, lockName), row.Name, row.Node),
				"take both out, and publish: it is sealed again")
		}
		l.rows[at] = row
	}
	return l, data, err
}

// write replaces the file, unless somebody else has meanwhile.
func (l *Lock) write(dir string, was []byte) error {
	at := slices.SortedFunc(maps.Keys(l.rows), func(a, b rowKey) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.name, b.name)) })
	if len(at) == 0 && was == nil {
		return nil
	}
	var rows []any
	for _, k := range at {
		rows = append(rows, l.rows[k])
	}
	data, err := encodeRows(lockKind, l.Key, "secrets", rows)
	if err != nil || bytes.Equal(data, was) {
		return err
	}
	return replace(filepath.Join(dir, lockName), was, data)
}

// Forget takes the rows of a node out of the file.
func Forget(dir, node string) error {
	l, was, err := readLock(dir)
	if err != nil {
		return err
	}
	maps.DeleteFunc(l.rows, func(at rowKey, _ Row) bool { return at.node == node })
	return l.write(dir, was)
}
