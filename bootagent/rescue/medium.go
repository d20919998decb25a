// SPDX-License-Identifier: Apache-2.0

package rescue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/trust"
)

// Media looks for statements on CDs, and on sticks that were written as such: file systems of
// ISO 9660 with the label [paths.RescueLabel] and one file. They are read here and not mounted:
// who puts a medium into a machine is to reach as little of its kernel as can be.
type Media struct {
	Sys, Dev string // /sys and /dev

	seen string
}

// News returns the statements on media, where a medium came or went since the last time. What is
// no such medium, or none that can be read, is passed over.
func (m *Media) News() (found []trust.Candidate) {
	files, _ := filepath.Glob(filepath.Join(m.Sys, "block/*")) // the pattern is valid
	var now strings.Builder
	var names []string
	for _, file := range files {
		name := filepath.Base(file)
		size, _ := os.ReadFile(file + "/size") // one that has gone reads as nothing
		if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.TrimSpace(string(size)) == "0" {
			continue
		}
		change, _ := os.ReadFile(file + "/diskseq") // before Linux 5.15 there is none, and the size has to do
		fmt.Fprintf(&now, "%s %s %s\n", name, size, change)
		names = append(names, name)
	}
	if now.String() == m.seen {
		return nil
	}
	m.seen = now.String()
	for _, name := range names {
		if c, err := onMedium(filepath.Join(m.Dev, name)); err == nil {
			found = append(found, c)
		}
	}
	return found
}

// Again has the next look read all media: what came of this one could not be kept.
func (m *Media) Again() { m.seen = "" }

func onMedium(device string) (trust.Candidate, error) {
	f, err := os.Open(device)
	if err != nil {
		return trust.Candidate{}, err
	}
	defer f.Close() // only read
	data, err := readISO(f)
	if err != nil {
		return trust.Candidate{}, err
	}
	return trust.LoadRescue(data)
}

// Of ECMA-119, what is needed to find one file in the root folder.
const (
	sector   = 2048
	volumeAt = 16 * sector // primary volume descriptor
	labelAt  = 40          // in it
	rootAt   = 156         // in it: the root folder's record
	maxRoot  = 64 << 10    // bytes of the root folder
)

var errNotRescue = errors.New("it carries no statement")

// readISO returns the statement of a medium.
func readISO(r io.ReaderAt) ([]byte, error) {
	volume := make([]byte, sector)
	if _, err := r.ReadAt(volume, volumeAt); err != nil {
		return nil, err
	}
	if string(volume[:7]) != "\x01CD001\x01" || strings.TrimRight(string(volume[labelAt:labelAt+32]), " \x00") != paths.RescueLabel {
		return nil, errNotRescue
	}
	folder, err := extent(r, volume[rootAt:rootAt+34], maxRoot)
	if err != nil {
		return nil, err
	}
	for at := 0; at < len(folder); {
		length := int(folder[at])
		if length == 0 { // the next record is in the next sector
			at = (at/sector + 1) * sector
			continue
		}
		if length < 34 || at+length > len(folder) || 33+int(folder[at+32]) > length {
			return nil, errNotRescue
		}
		record := folder[at : at+length]
		name, _, _ := strings.Cut(string(record[33:33+int(record[32])]), ";")
		if record[25]&2 == 0 && strings.EqualFold(strings.TrimSuffix(name, "."), paths.RescueFile) {
			return extent(r, record, trust.MaxSaved)
		}
		at += length
	}
	return nil, errNotRescue
}

// extent reads what a record of a folder is about.
func extent(r io.ReaderAt, record []byte, limit int) ([]byte, error) {
	at, size := binary.LittleEndian.Uint32(record[2:]), binary.LittleEndian.Uint32(record[10:])
	if size > uint32(limit) {
		return nil, fmt.Errorf("%w: %d bytes", errNotRescue, size)
	}
	data := make([]byte, size)
	_, err := r.ReadAt(data, int64(at)*sector)
	if errors.Is(err, io.EOF) && size == 0 {
		err = nil
	}
	return data, err
}

// Terminal names the device behind /dev/console, as in ttyS0: the last that the kernel was told.
// tty0 is the virtual console that is shown, of which the first has a getty.
func Terminal(root string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, "/sys/class/tty/console/active"))
	if err != nil {
		return "", err
	}
	words := strings.Fields(string(data))
	if len(words) == 0 || strings.Contains(words[len(words)-1], "/") {
		return "", fmt.Errorf("the kernel has no console: %q", data)
	}
	if last := words[len(words)-1]; last != "tty0" {
		return last, nil
	}
	return "tty1", nil
}
