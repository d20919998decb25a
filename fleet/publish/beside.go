// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Elsewhere refuses a directory that is not here and that something was published to: its name
// is relative, and this is another directory.
func (m *Memory) Elsewhere(ref oci.Ref) error {
	if m == nil || !ref.IsLayout() || filepath.IsAbs(ref.Layout) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(ref.Layout, "index.json")); !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // what is wrong with it is said by who reads it
	}
	if seen, known := m.At(ref.String()); known && seen.Generation > 0 {
		return cli.Usage("go to the directory where it was published from: oci:DIR is relative to the current one",
			"%s held generation %d of fleet %q, and is not below this directory", ref, seen.Generation, seen.Fleet)
	}
	return nil
}

// Sent returns what a node was sent, nil for nothing; no node was sent anything by a fleet that is nil.
func (f *Fleet) Sent(ctx context.Context, node string) (*spec.Overlay, error) {
	if f == nil {
		return nil, nil
	}
	if _, is, err := f.Row(ctx, node); err != nil || !is {
		return nil, err
	}
	return f.Overlay(ctx, node)
}

// ApprovalName is of the plan and of who approves: two operators have two objects, and one who
// approves again has the same.
func ApprovalName(plan string, key any) (string, error) {
	v, err := sign.NewVerifier(key)
	if err != nil {
		return "", err
	}
	return digest.Hex(plan)[:12] + "-" + digest.Hex(digest.Of(v.PEM()))[:8], nil
}
