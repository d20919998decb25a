// SPDX-License-Identifier: Apache-2.0

package tpm

import (
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// Quoted holds what a TPM says of registers.
type Quoted struct {
	Key       []byte   // TPMT_PUBLIC
	Attest    []byte   // TPMS_ATTEST
	Signature []byte   // TPMT_SIGNATURE
	Values    [][]byte // of the registers, in their order
}

// Quote has registers of SHA-256 quoted, with a nonce of who asks. The key is made of the TPM's own seed
// each time: the same one, until the owner's hierarchy is cleared.
func (t TPM) Quote(nonce []byte, registers []uint) (*Quoted, error) {
	q, err := do(t, func(to transport.TPM) (q Quoted, err error) {
		err = withKey(to, func(key *tpm2.CreatePrimaryResponse) error {
			said, err := tpm2.Quote{
				SignHandle:     tpm2.AuthHandle{Handle: key.ObjectHandle, Name: key.Name, Auth: tpm2.PasswordAuth(nil)},
				QualifyingData: tpm2.TPM2BData{Buffer: nonce},
				InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull}, // the key's own
				PCRSelect:      selection(registers),
			}.Execute(to)
			if err != nil {
				return err
			}
			q.Key, q.Attest, q.Signature = key.OutPublic.Bytes(), said.Quoted.Bytes(), tpm2.Marshal(said.Signature)
			q.Values, err = read(to, registers)
			return err
		})
		return q, err
	})
	if err != nil {
		return nil, fmt.Errorf("quote registers: %w", err)
	}
	return &q, nil
}

// Key returns the public part of the key of quotes, a TPMT_PUBLIC.
func (t TPM) Key() ([]byte, error) {
	return do(t, func(to transport.TPM) (public []byte, err error) {
		err = withKey(to, func(key *tpm2.CreatePrimaryResponse) error {
			public = key.OutPublic.Bytes()
			return nil
		})
		return public, err
	})
}

// withKey makes the key, and takes it out of the TPM's memory afterwards.
func withKey(to transport.TPM, do func(*tpm2.CreatePrimaryResponse) error) error {
	key, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(template)}.Execute(to)
	if err != nil {
		return fmt.Errorf("make the key: %w", err)
	}
	err = do(key)
	_, gone := tpm2.FlushContext{FlushHandle: key.ObjectHandle}.Execute(to)
	return errors.Join(err, gone)
}

// template is that of the key: it signs what the TPM itself says, and never leaves it. Primary
// keys of one template are the same.
var template = tpm2.TPMTPublic{
	Type:    tpm2.TPMAlgECC,
	NameAlg: tpm2.TPMAlgSHA256,
	ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, NoDA: true,
		Restricted: true, SignEncrypt: true},
	Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
		CurveID: tpm2.TPMECCNistP256,
		Scheme: tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgECDSA,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256})},
	}),
}
