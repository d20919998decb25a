// SPDX-License-Identifier: Apache-2.0

// Package digest spells digests: "sha256:" and 64 lower-case hex digits. There is
// no other algorithm, since a choice of algorithms is a choice for the attacker.
//
// It imports the standard library only; everything may import it.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strings"
)

const prefix = "sha256:"

// Of returns the digest of data.
func Of(data []byte) string {
	sum := sha256.Sum256(data)
	return prefix + hex.EncodeToString(sum[:])
}

// From returns the digest of what was written to h, a SHA-256.
func From(h hash.Hash) string { return FromHex(hex.EncodeToString(h.Sum(nil))) }

// Short returns the beginning of the digest of data, for people to tell texts apart.
func Short(data []byte) string { return Of(data)[:len(prefix)+12] }

// FromHex returns the digest with these hex digits, which it does not check.
func FromHex(digits string) string { return prefix + digits }

// Hex returns the hex digits of a digest; what is not one comes back as it is.
func Hex(digest string) string { return strings.TrimPrefix(digest, prefix) }

// Valid reports whether s is a digest.
func Valid(s string) bool {
	digits, ok := strings.CutPrefix(s, prefix)
	return ok && len(digits) == 2*sha256.Size && strings.Trim(digits, "0123456789abcdef") == ""
}
