// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

const page = "../../docs/formats/site-files.md"

// TestLockGolden: secrets.lock of 0.10.0 is read, and written byte-equal.
func TestLockGolden(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, lockName)
	golden.Check(t, golden.Document{File: "testdata/golden/" + lockName, Page: page, New: new(lockFile), Refused: true,
		Sample: func(v any) {
			l := v.(*lockFile)
			l.APIVersion, l.Kind = spec.APIVersion, lockKind
		},
		Write: func(v any) ([]byte, error) {
			was, err := os.ReadFile(name)
			if err != nil && !os.IsNotExist(err) {
				return nil, err
			}
			l := &Lock{Key: v.(*lockFile).Key, rows: map[rowKey]Row{}}
			for _, row := range v.(*lockFile).Secrets {
				l.rows[rowKey{row.Node, row.Name}] = row
			}
			if err := l.write(dir, was); err != nil {
				return nil, err
			}
			return os.ReadFile(name)
		},
		Read: func(data []byte) (any, error) {
			if err := os.WriteFile(name, data, 0o644); err != nil {
				return nil, err
			}
			l, _, err := readLock(dir)
			if err != nil {
				return nil, err
			}
			file := &lockFile{APIVersion: spec.APIVersion, Kind: lockKind, Key: l.Key}
			for _, row := range l.rows {
				file.Secrets = append(file.Secrets, row)
			}
			return file, nil
		},
		Types: []reflect.Type{reflect.TypeFor[lockFile](), reflect.TypeFor[Row]()}})
}

// TestRecipientsGolden: so is recipients.lock.
func TestRecipientsGolden(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, RecipientsName)
	golden.Check(t, golden.Document{File: "testdata/golden/" + RecipientsName, Page: page, New: new(recipientsFile), Refused: true,
		Sample: func(v any) {
			f := v.(*recipientsFile)
			f.APIVersion, f.Kind = spec.APIVersion, recipientsKind
			f.Recipients[0].Recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
		},
		Write: func(v any) ([]byte, error) {
			was, err := os.ReadFile(name)
			if err != nil && !os.IsNotExist(err) {
				return nil, err
			}
			r := &Recipients{Nodes: map[string]Accepted{}, file: name, was: was}
			for _, one := range v.(*recipientsFile).Recipients {
				r.Nodes[one.Node] = one
			}
			if err := r.Write(); err != nil {
				return nil, err
			}
			return os.ReadFile(name)
		},
		Read: func(data []byte) (any, error) {
			if err := os.WriteFile(name, data, 0o644); err != nil {
				return nil, err
			}
			r, err := ReadRecipients(dir)
			if err != nil {
				return nil, err
			}
			file := &recipientsFile{APIVersion: spec.APIVersion, Kind: recipientsKind}
			for _, one := range r.Nodes {
				file.Recipients = append(file.Recipients, one)
			}
			return file, nil
		},
		Types: []reflect.Type{reflect.TypeFor[recipientsFile](), reflect.TypeFor[Accepted]()}})
}
