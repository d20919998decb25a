// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// Key returns the digest of the key that the TPM quotes with, spec.NoTPM where there is none.
func (l *Log) Key() (string, error) {
	public, err := l.TPM.Key()
	if errors.Is(err, tpm.ErrNone) {
		return spec.NoTPM, nil
	}
	if err != nil {
		return "", fmt.Errorf("the key of the TPM: %w", err)
	}
	return digest.Of(public), nil
}

// Endorse adds the TPM's endorsement key to a quote, and the certificate where it has one.
func (l *Log) Endorse(q *spec.Quote) (err error) {
	q.EK, q.EKCertificate, err = l.TPM.Endorsement()
	return err
}

// Activate opens a nonce that is sealed to this TPM.
func (l *Log) Activate(credential, secret []byte) ([]byte, error) {
	return l.TPM.Activate(credential, secret)
}

// Quote has the TPM quote its registers, and adds the logs that explain them. Whose node it is, is the caller's to say.
func (l *Log) Quote(nonce []byte) (*spec.Quote, error) {
	said, err := l.TPM.Quote(nonce, spec.Quoted)
	if err != nil {
		return nil, err
	}
	q := &spec.Quote{APIVersion: spec.APIVersion, Kind: spec.KindQuote, Nonce: hex.EncodeToString(nonce),
		Key: said.Key, Attest: said.Attest, Signature: said.Signature, Registers: said.Values}
	own, err := ownfiles.ReadPublic(filepath.Join(l.Dir, OwnName), spec.MaxMeasured)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without one, who verifies says what is missing
		return nil, err
	}
	q.Log = string(own)
	q.Firmware, err = ownfiles.ReadPublic(filepath.Join(l.Dir, FirmwareName), spec.MaxFirmware)
	if errors.Is(err, fs.ErrNotExist) {
		q.Firmware, err = ownfiles.ReadPublic(l.Firmware, spec.MaxFirmware)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return q, nil
}
