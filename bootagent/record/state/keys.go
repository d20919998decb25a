// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/ownfiles"
)

// keysDir holds the versions of fleet:keys that this node has accepted, each in a file of
// its own: NUMBER.json. The greatest number is a floor, whatever is in the file.
const keysDir = "keys"

// SaveKeys keeps an accepted version of fleet:keys, encoded by trust.Candidate.SaveKeys.
func (f *Folder) SaveKeys(version uint64, saved []byte) error {
	if err := ownfiles.Folder(f.Path(keysDir)); err != nil {
		return fmt.Errorf("keep keys: %w", err)
	}
	if err := write(f.keysPath(version), saved); err != nil {
		return fmt.Errorf("keep keys: %w", err)
	}
	return nil
}

// LoadKeys returns what SaveKeys kept. The caller verifies it again.
func (f *Folder) LoadKeys(version uint64) ([]byte, error) {
	data, err := ownfiles.ReadFile(f.keysPath(version), limit)
	if err != nil {
		return nil, fmt.Errorf("kept keys: %w", err)
	}
	return data, nil
}

// KeysVersions returns the versions of fleet:keys that are kept, in order.
func (f *Folder) KeysVersions() ([]uint64, error) {
	entries, err := os.ReadDir(f.Path(keysDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("kept keys: %w", err)
	}
	var versions []uint64
	for _, e := range entries {
		name, _ := strings.CutSuffix(e.Name(), ".json")
		if n, err := strconv.ParseUint(name, 10, 64); err == nil && f.keysPath(n) == f.Path(keysDir, e.Name()) {
			versions = append(versions, n)
		}
	}
	slices.Sort(versions)
	return versions, nil
}

func (f *Folder) keysPath(version uint64) string {
	return f.Path(keysDir, strconv.FormatUint(version, 10)+".json")
}
