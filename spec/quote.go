// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
)

// KindQuote is the kind of [Quote].
const KindQuote = "Quote"

// Quote is a TPM's statement about its machine's registers, with the logs that explain them.
// Whose it is follows from the key alone.
type Quote struct {
	APIVersion    string   `json:"apiVersion"`
	Kind          string   `json:"kind"` // KindQuote
	Fleet         string   `json:"fleet"`
	Node          string   `json:"node"`
	Nonce         string   `json:"nonce"`                   // of who asked, hexadecimal
	Key           []byte   `json:"key"`                     // TPMT_PUBLIC of the TPM's key
	Attest        []byte   `json:"attest"`                  // TPMS_ATTEST, which the key has signed
	Signature     []byte   `json:"signature"`               // TPMT_SIGNATURE
	Registers     [][]byte `json:"registers"`               // what was in Quoted, in that order
	EK            []byte   `json:"ek,omitempty"`            // TPMT_PUBLIC of the TPM's endorsement key; absent where it gives none
	EKCertificate []byte   `json:"ekCertificate,omitempty"` // DER, of who made the TPM, as NV has it; absent where it has none
	Firmware      []byte   `json:"firmware,omitempty"`      // the log of the machine's firmware; absent where it has none
	Log           string   `json:"log,omitempty"`           // Measured, one a line; absent where nothing was measured
}

// Quoted lists the registers of a quote. Those left out change while a node runs.
var Quoted = []uint{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, PCR}

// Bounds of a quote.
const (
	MaxQuote    = 4 << 20 // bytes of the document
	MaxFirmware = 1 << 20 // bytes of the firmware's log
	MinNonce    = 16      // bytes
	MaxNonce    = 32      // bytes
)

// NonceHeader is the header with a nonce, hexadecimal: of the answer to a report, for which the
// service wants a quote over it, and of the request that brings that. In an answer it may be
// sealed to the TPM: the credential and the secret of TPM2_ActivateCredential, without their sizes,
// in base64, with a space between.
const NonceHeader = "Caisson-Nonce"

// QuotePath is where a service takes quotes, below its address.
const QuotePath = "/v1/quote"

// DecodeQuote reads a quote that any release may have written. What this release does not
// know is passed over: all that counts is signed by the TPM. The caller caps the size.
func DecodeQuote(data []byte) (*Quote, error) {
	var q Quote
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, fmt.Errorf("decode quote: %w", err)
	}
	switch {
	case q.APIVersion != APIVersion || q.Kind != KindQuote:
		return nil, fmt.Errorf("decode quote: it is a %.40q of %.40q", q.Kind, q.APIVersion)
	case len(q.Firmware) > MaxFirmware:
		return nil, fmt.Errorf("decode quote: the firmware's log has %d bytes, %d are the most", len(q.Firmware), MaxFirmware)
	}
	return &q, nil
}

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
