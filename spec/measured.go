// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
)

// PCR is the register of a TPM that holds the history of what a node went on with, see [Measured].
// Firmware extends 0 to 7, systemd's stub and boot manager 11, 12, 13 and 5, Linux 9 and 10, systemd 11 and 15. The
// register 14 is of shim, which starts none of caisson's loaders.
const PCR = 14

// Measured is a line of a node's log of what it went on with: one JSON document, of which
// the SHA-256 was extended into [PCR] before. See [Replay].
type Measured struct {
	Event  MeasuredEvent `json:"event"`
	Layer  string        `json:"layer"`            // digest of its manifest
	Core   string        `json:"core"`             // of the overlay on this layer, see [RootID]
	Kernel string        `json:"kernel,omitempty"` // digest, of a kexec
	Initrd string        `json:"initrd,omitempty"` // digest of the layer's generic one, of a kexec
	Line   string        `json:"line,omitempty"`   // the next kernel's arguments, of a kexec
}

// MeasuredEvent names the act that a node is about to begin.
type MeasuredEvent string

// Events that are measured.
const (
	MeasuredKexec      MeasuredEvent = "kexec"       // the loader enters the layer's kernel, and another loader
	MeasuredStack      MeasuredEvent = "stack"       // the loader makes and enters a root
	MeasuredSoftReboot MeasuredEvent = "soft-reboot" // the running node makes the root that it goes to
)

// MaxMeasured is how many bytes such a log has at most.
const MaxMeasured = 256 << 10

// Extend returns the content of a register of SHA-256 after a digest was extended into it.
func Extend(register, digest [sha256.Size]byte) [sha256.Size]byte {
	return sha256.Sum256(append(register[:], digest[:]...))
}

// Replay reads a log of [Measured] lines, each with its line feed, and returns what they left
// in a register that began as given.
func Replay(register [sha256.Size]byte, log []byte) ([]Measured, [sha256.Size]byte, error) {
	if len(log) > MaxMeasured {
		return nil, register, fmt.Errorf("read the log of what was measured: it has %d bytes, %d are the most", len(log), MaxMeasured)
	}
	var all []Measured
	for n := 1; len(log) > 0; n++ {
		line, rest, whole := bytes.Cut(log, []byte("\n"))
		if !whole {
			return nil, register, errors.New("read the log of what was measured: it ends within a line")
		}
		var m Measured
		if err := Decode(line, &m); err != nil {
			return nil, register, fmt.Errorf("read the log of what was measured: line %d: %w", n, err)
		}
		all, register, log = append(all, m), Extend(register, sha256.Sum256(line)), rest
	}
	return all, register, nil
}
