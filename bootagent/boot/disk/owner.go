// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// ownerFile is the owner record, in the top directory of the state disk.
const ownerFile = "owner.json"

// owner is whose memory a disk is.
type owner struct {
	Fleet   string `json:"fleet"`
	Machine string `json:"machine,omitempty"` // SMBIOS UUID
}

// Claim writes the owner record of a disk that is mounted at dir and has none yet,
// or another machine's that the site has named for this one.
func (f *Finder) Claim(dir string) error {
	mine := owner{Fleet: f.Fleet, Machine: f.Machine}
	have, err := readOwner(dir)
	if err == nil && (*have == mine || mine.Machine == "") {
		return nil
	}
	data, err := spec.Encode(mine)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, ownerFile), data, 0o600); err != nil {
		return fmt.Errorf("note whose disk this is: %w", err)
	}
	return nil
}

// readOwner returns the record, or fs.ErrNotExist. One that others could have
// written is an error.
func readOwner(dir string) (*owner, error) {
	var o owner
	if err := readJSON(filepath.Join(dir, ownerFile), &o); err != nil {
		return nil, fmt.Errorf("owner record: %w", err)
	}
	return &o, nil
}

// readFloor returns the floor that the disk remembers, for choosing between two;
// zero where that cannot be read. Whoever uses the state judges it again.
func readFloor(dir string) spec.Floor {
	var s struct {
		Floor spec.Floor `json:"floor"`
	}
	if readJSON(filepath.Join(dir, "state.json"), &s) != nil {
		return spec.Floor{}
	}
	return s.Floor
}

// maxRecord caps what is read of a candidate.
const maxRecord = 1 << 20

func readJSON(name string, to any) error {
	file, err := ownfiles.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() // only read
	data, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}
