// SPDX-License-Identifier: Apache-2.0

package tpm

import (
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// endorsements are the profiles of a TPM's endorsement key, each with the NV index that has the
// certificate of its maker: see TCG's "EK Credential Profile".
var endorsements = []struct {
	template    tpm2.TPMTPublic
	certificate tpm2.TPMHandle
}{{tpm2.ECCEKTemplate, 0x01c0000a}, {tpm2.RSAEKTemplate, 0x01c00002}}

const (
	maxCertificate = 4 << 10 // bytes
	nvPerRead      = 512     // which each TPM gives
)

// Endorsement returns the public part of the endorsement key, a TPMT_PUBLIC, and its certificate: DER,
// with padding where its maker left some, nil where there is none.
func (t TPM) Endorsement() (public, certificate []byte, err error) {
	is, err := do(t, func(to transport.TPM) (is [2][]byte, err error) {
		err = withEndorsement(to, func(key *tpm2.CreatePrimaryResponse, certificate []byte) error {
			is = [2][]byte{key.OutPublic.Bytes(), certificate}
			return nil
		})
		return is, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("the endorsement key of the TPM: %w", err)
	}
	return is[0], is[1], nil
}

// Activate opens what somebody sealed to the endorsement key and to the name of the key of quotes.
// A TPM that has not both refuses.
func (t TPM) Activate(credential, secret []byte) ([]byte, error) {
	opened, err := do(t, func(to transport.TPM) (opened []byte, err error) {
		err = withKey(to, func(key *tpm2.CreatePrimaryResponse) error {
			return withEndorsement(to, func(endorsement *tpm2.CreatePrimaryResponse, _ []byte) error {
				s, err := endorse(to)
				if err != nil {
					return err
				}
				answer, err := tpm2.ActivateCredential{
					ActivateHandle: tpm2.AuthHandle{Handle: key.ObjectHandle, Name: key.Name, Auth: tpm2.PasswordAuth(nil)},
					KeyHandle:      tpm2.AuthHandle{Handle: endorsement.ObjectHandle, Name: endorsement.Name, Auth: s},
					CredentialBlob: tpm2.TPM2BIDObject{Buffer: credential},
					Secret:         tpm2.TPM2BEncryptedSecret{Buffer: secret},
				}.Execute(to)
				if err == nil {
					opened = answer.CertInfo.Buffer
				}
				return err
			})
		})
		return opened, err
	})
	if err != nil {
		return nil, fmt.Errorf("open what is sealed to the TPM: %w", err)
	}
	return opened, nil
}

// endorse begins a session that may use the endorsement key: who has the hierarchy's password may, and
// that is empty where nobody set one.
func endorse(to transport.TPM) (session, error) {
	s, err := begin(to)
	if err != nil {
		return session{}, err
	}
	_, err = tpm2.PolicySecret{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHEndorsement, Auth: tpm2.PasswordAuth(nil)},
		PolicySession: s.handle, NonceTPM: s.nonce}.Execute(to)
	if err != nil {
		return session{}, errors.Join(fmt.Errorf("the password of the endorsement hierarchy: %w", err), s.CleanupFailure(to))
	}
	return s, nil
}

// begin begins a session that nothing is allowed to yet. The TPM ends it with the command that it is for.
func begin(to transport.TPM) (session, error) {
	begun, err := tpm2.StartAuthSession{TPMKey: tpm2.TPMRHNull, Bind: tpm2.TPMRHNull, NonceCaller: tpm2.TPM2BNonce{Buffer: make([]byte, 16)},
		SessionType: tpm2.TPMSEPolicy, Symmetric: tpm2.TPMTSymDef{Algorithm: tpm2.TPMAlgNull}, AuthHash: tpm2.TPMAlgSHA256}.Execute(to)
	if err != nil {
		return session{}, fmt.Errorf("begin a session: %w", err)
	}
	return session{handle: begun.SessionHandle, nonce: begun.NonceTPM}, nil
}

// session is a policy session without a key of its own, so no command of it has an HMAC. One of go-tpm
// brings all that a session with a key needs, which is 20 KiB of a program.
type session struct {
	handle tpm2.TPMHandle
	nonce  tpm2.TPM2BNonce // the TPM's
}

// Init and the others implement [tpm2.Session].
func (s session) Init(transport.TPM) error { return nil }
func (s session) CleanupFailure(to transport.TPM) error {
	_, err := tpm2.FlushContext{FlushHandle: s.handle}.Execute(to)
	return err
}
func (s session) NonceTPM() tpm2.TPM2BNonce { return tpm2.TPM2BNonce{} }
func (s session) NewNonceCaller() error     { return nil }
func (s session) Handle() tpm2.TPMHandle    { return s.handle }
func (s session) IsEncryption() bool        { return false }
func (s session) IsDecryption() bool        { return false }
func (s session) Encrypt([]byte) error      { return nil }
func (s session) Decrypt([]byte) error      { return nil }
func (s session) Authorize(tpm2.TPMCC, []byte, []byte, []tpm2.TPM2BName, int) (*tpm2.TPMSAuthCommand, error) {
	return &tpm2.TPMSAuthCommand{Handle: s.handle}, nil
}
func (s session) Validate(tpm2.TPMRC, tpm2.TPMCC, []byte, []tpm2.TPM2BName, int, *tpm2.TPMSAuthResponse) error {
	return nil
}

// withEndorsement makes the endorsement key that has a certificate, or the first one, and takes it
// out of the TPM's memory afterwards.
func withEndorsement(to transport.TPM, do func(key *tpm2.CreatePrimaryResponse, certificate []byte) error) error {
	of := endorsements[0]
	var certificate []byte
	for _, e := range endorsements {
		c, err := readNV(to, e.certificate, maxCertificate)
		if err != nil {
			return fmt.Errorf("read its certificate: %w", err)
		}
		if c != nil {
			of, certificate = e, c
			break
		}
	}
	key, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(of.template)}.Execute(to)
	if err != nil {
		return fmt.Errorf("make the endorsement key: %w", err)
	}
	err = do(key, certificate)
	_, gone := tpm2.FlushContext{FlushHandle: key.ObjectHandle}.Execute(to)
	return errors.Join(err, gone)
}

// publicNV returns what an index is, nil where there is none.
func publicNV(to transport.TPM, index tpm2.TPMHandle) (*tpm2.TPMSNVPublic, *tpm2.TPM2BName, error) {
	is, err := tpm2.NVReadPublic{NVIndex: index}.Execute(to)
	if errors.Is(err, tpm2.TPMRCHandle) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	public, err := is.NVPublic.Contents()
	return public, &is.NVName, err
}

// readNV returns what an index has, nil where there is none.
func readNV(to transport.TPM, index tpm2.TPMHandle, most uint16) ([]byte, error) {
	public, name, err := publicNV(to, index)
	if public == nil || err != nil {
		return nil, err
	}
	if public.DataSize > most {
		return nil, fmt.Errorf("index %#x has %d bytes, %d are the most", index, public.DataSize, most)
	}
	var data []byte
	for left := public.DataSize; left > 0; left = public.DataSize - uint16(len(data)) {
		part, err := tpm2.NVRead{AuthHandle: tpm2.AuthHandle{Handle: index, Name: *name, Auth: tpm2.PasswordAuth(nil)},
			NVIndex: tpm2.NamedHandle{Handle: index, Name: *name}, Size: min(left, nvPerRead), Offset: uint16(len(data))}.Execute(to)
		if err != nil {
			return nil, err
		}
		if n := len(part.Data.Buffer); n == 0 || n > int(left) {
			return nil, fmt.Errorf("index %#x ends after %d bytes of %d", index, len(data), public.DataSize)
		}
		data = append(data, part.Data.Buffer...)
	}
	return data, nil
}

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
