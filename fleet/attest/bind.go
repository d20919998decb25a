// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// endorsement reads an endorsement key, and refuses what no profile of TCG's has: what it is used for,
// and how it is protected, is then known of the TPM that has it.
func endorsement(ek []byte) (*tpm2.TPMTPublic, error) {
	public, err := tpm2.Unmarshal[tpm2.TPMTPublic](ek)
	if err != nil {
		return nil, fmt.Errorf("the endorsement key: %w", err)
	}
	for _, template := range []tpm2.TPMTPublic{tpm2.ECCEKTemplate, tpm2.RSAEKTemplate} {
		if template.Unique = public.Unique; public.Type == template.Type && bytes.Equal(tpm2.Marshal(template), ek) {
			return public, nil
		}
	}
	return nil, errors.New("the endorsement key is of no known profile")
}

// sealNonce seals a nonce for the TPM that has an endorsement key and the key of a digest.
func sealNonce(ek []byte, key string, nonce []byte) (string, error) {
	public, err := endorsement(ek)
	if err != nil {
		return "", err
	}
	to, err := tpm2.ImportEncapsulationKey(public)
	if err != nil {
		return "", fmt.Errorf("the endorsement key: %w", err)
	}
	sum, err := hex.DecodeString(digest.Hex(key)) // of a TPMT_PUBLIC, so with the hash's number it is a name
	if err != nil {
		return "", err
	}
	credential, secret, err := tpm2.CreateCredential(rand.Reader, to,
		append(binary.BigEndian.AppendUint16(nil, uint16(tpm2.TPMAlgSHA256)), sum...), nonce)
	if err != nil {
		return "", fmt.Errorf("seal to the endorsement key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(credential) + " " + base64.StdEncoding.EncodeToString(secret), nil
}

// boundTo returns the endorsement key that a key of quotes was bound to last.
func boundTo(q *view.Quote, key string) []byte {
	if q == nil {
		return nil
	}
	for _, m := range []*view.Machine{q.Accepted, q.Seen} {
		if m != nil && m.Key == key && len(m.EK) > 0 {
			return m.EK
		}
	}
	return nil
}

// isLike reports whether two quotes are of one machine, as far as its keys say.
func isLike(m, accepted view.Machine) bool {
	if len(accepted.EK) > 0 {
		return bytes.Equal(m.EK, accepted.EK)
	}
	return m.Key == accepted.Key
}

// certify takes what a machine showed first as accepted, where an authority has certified its
// TPM. Its loader has to be known all the same.
func (d *Desk) certify(known *Known, q *spec.Quote) error {
	if d.Authorities == nil {
		return nil
	}
	if err := certified(q.EKCertificate, known.EK, d.Authorities, d.Now()); err != nil {
		return err
	}
	m, err := known.Accept(q)
	if err == nil {
		known.Like = append(known.Like, m)
	}
	return err
}

// certified holds that an authority has certified an endorsement key.
func certified(der, ek []byte, by *x509.CertPool, now time.Time) error {
	if len(der) == 0 || len(ek) == 0 {
		return errors.New("its TPM shows no certificate")
	}
	var whole asn1.RawValue // NV may have padding behind it
	if _, err := asn1.Unmarshal(der, &whole); err != nil {
		return fmt.Errorf("the certificate of its TPM: %w", err)
	}
	c, err := x509.ParseCertificate(whole.FullBytes)
	if err != nil {
		return fmt.Errorf("the certificate of its TPM: %w", err)
	}
	public, err := endorsement(ek)
	if err != nil {
		return err
	}
	key, err := tpm2.Pub(*public)
	if err != nil {
		return fmt.Errorf("the endorsement key: %w", err)
	}
	if k, ok := key.(interface{ Equal(crypto.PublicKey) bool }); !ok || !k.Equal(c.PublicKey) {
		return errors.New("the certificate of its TPM is of another key")
	}
	// The TPM's model is in a name of its subject that is critical, and that package x509 does not read.
	c.UnhandledCriticalExtensions = slices.DeleteFunc(c.UnhandledCriticalExtensions, asn1.ObjectIdentifier{2, 5, 29, 17}.Equal)
	if _, err := c.Verify(x509.VerifyOptions{Roots: by, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("the certificate of its TPM: %w", err)
	}
	return nil
}
