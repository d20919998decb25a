// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Wanted returns where an overlay wants metrics: nowhere where it wants none, or wants
// them where they must not be, which is the error.
func Wanted(o *spec.Overlay) (spec.Metrics, error) {
	if o.Agent == nil || o.Agent.Metrics == nil {
		return spec.Metrics{}, nil
	}
	if err := rules.Metrics(*o.Agent.Metrics); err != nil {
		return spec.Metrics{}, fmt.Errorf("agent.metrics of the overlay: %w", err)
	}
	return *o.Agent.Metrics, nil
}

// Publish writes a text where it is wanted, and for the service, which answers at an
// address. root is the prefix of every path.
func Publish(root string, want spec.Metrics, text []byte) error {
	answered := filepath.Join(root, paths.RunMetrics)
	if want == (spec.Metrics{}) {
		return durable.Remove(answered)
	}
	err := durable.WriteFile(answered, text, 0o644)
	if want.File == "" {
		return err
	}
	fileErr := in(filepath.Join(root, want.File), func(dir safepath.Dir, name string) error {
		return dir.Put(name, safepath.Thing{Mode: unix.S_IFREG | 0o644, UID: os.Geteuid(), GID: os.Getegid(), Content: text})
	})
	if fileErr != nil {
		err = errors.Join(err, fmt.Errorf("write metrics to %s: %w", want.File, fileErr))
	}
	return err
}

// Withdraw removes the file that metrics were written to.
func Withdraw(root, file string) error {
	if err := in(filepath.Join(root, file), safepath.Dir.Remove); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove metrics from %s: %w", file, err)
	}
	return nil
}

// in does something in the directory of a path, which may belong to who collects.
func in(path string, do func(dir safepath.Dir, name string) error) error {
	var walk safepath.Walk
	defer walk.Close()
	dir, err := walk.Hold(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	return do(dir, filepath.Base(path))
}
