// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"crypto/sha256"
	"encoding/binary"
)

// Approvals say with which content of registers a TPM opens what is sealed to a key: the section
// .pcrsig of a loader, in systemd's form, see systemd-measure(1). The stub leaves that section out of the
// register, and passes it on as [ApprovalsFile].
type Approvals struct {
	SHA256 []Approval `json:"sha256"`
}

// Approval is signed by one key, of one content of registers.
type Approval struct {
	Registers []uint `json:"pcrs"`
	Key       string `json:"pkfp"` // SHA-256 of the key's PKIX, hexadecimal
	Policy    string `json:"pol"`  // digest of TPM2_PolicyPCR over them, hexadecimal, see [RegisterPolicy]
	Signature []byte `json:"sig"`  // of the digest's bytes: PKCS #1 v1.5 with SHA-256
}

// Sections of a loader, and where the stub puts them in its initramfs.
const (
	ApprovalsSection   = ".pcrsig"
	ApprovalKeySection = ".pcrpkey" // PEM of a PKIX, which the stub measures
	ApprovalsFile      = "/.extra/tpm2-pcr-signature.json"
	ApprovalKeyFile    = "/.extra/tpm2-pcr-public-key.pem"
)

// RegisterPolicy returns the digest of TPM2_PolicyPCR over one register of SHA-256 below 24 with a content, see
// "TPM 2.0 Library", part 3.
func RegisterPolicy(register uint, content [sha256.Size]byte) [sha256.Size]byte {
	const command, algorithm = 0x17f, 0x0b // TPM_CC_PolicyPCR, TPM_ALG_SHA256
	said := binary.BigEndian.AppendUint32(make([]byte, sha256.Size), command)
	said = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(said, 1), algorithm)
	selected := [3]byte{}
	selected[register/8] = 1 << (register % 8)
	said = append(append(said, byte(len(selected))), selected[:]...)
	values := sha256.Sum256(content[:])
	return sha256.Sum256(append(said, values[:]...))
}
