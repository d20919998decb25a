// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"encoding/json"
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
