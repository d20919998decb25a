// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
)

// sweep is [Batch.Sweep]. What cannot be read stops it before anything is removed.
func sweep(dir string, grace time.Duration) (freed int64, err error) {
	needed, err := reachable(dir)
	if err != nil {
		return 0, err
	}
	if err := removeUnfinished(dir); err != nil {
		return 0, err
	}
	blobs := filepath.Join(dir, "blobs", "sha256")
	entries, err := os.ReadDir(blobs)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return freed, err
		}
		if needed[digest.FromHex(e.Name())] || time.Since(info.ModTime()) < grace {
			continue
		}
		if err := os.Remove(filepath.Join(blobs, e.Name())); err != nil {
			return freed, err
		}
		freed += info.Size()
	}
	return freed, nil
}

// reachable returns the digests of all blobs that index.json leads to.
func reachable(dir string) (map[string]bool, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		return nil, err
	}
	index, err := oci.ParseLayoutIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("sweep %s: %w", dir, err)
	}
	needed := map[string]bool{}
	var visit func(digest string) error
	visit = func(digest string) error {
		if needed[digest] {
			return nil
		}
		needed[digest] = true
		raw, err := os.ReadFile(filepath.Join(dir, oci.BlobPath(digest)))
		if err != nil {
			return err
		}
		if x, err := oci.ParseIndex(raw); err == nil {
			for _, d := range x.Manifests {
				if err := visit(d.Digest); err != nil {
					return err
				}
			}
			return nil
		}
		m, err := oci.ParseManifest(raw)
		if err != nil {
			return fmt.Errorf("sweep %s: %s: %w", dir, digest, err)
		}
		needed[m.Config.Digest] = true
		for _, d := range m.Layers {
			needed[d.Digest] = true
		}
		return nil
	}
	for _, d := range index.Manifests {
		if err := visit(d.Digest); err != nil {
			return nil, err
		}
	}
	return needed, nil
}

// removeUnfinished removes what is half written of index and marker, which are written under the
// lock that the caller holds.
func removeUnfinished(dir string) error {
	for _, pattern := range []string{".index.json.*", ".oci-layout.*"} {
		left, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, name := range left {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}
