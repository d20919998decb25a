// SPDX-License-Identifier: Apache-2.0

package tpm

import (
	"crypto/rsa"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/caisson-os/caisson/internal/fault"
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
	is, err := do(t, "the endorsement key of the TPM", func(to transport.TPM) (is [2][]byte, err error) {
		err = withEndorsement(to, func(key *tpm2.CreatePrimaryResponse, certificate []byte) error {
			is = [2][]byte{key.OutPublic.Bytes(), certificate}
			return nil
		})
		return is, err
	})
	if err != nil {
		return nil, nil, err
	}
	return is[0], is[1], nil
}

// Activate opens what somebody sealed to the endorsement key and to the name of the key of quotes.
// A TPM that has not both refuses.
func (t TPM) Activate(credential, secret []byte) ([]byte, error) {
	return do(t, "open what is sealed to the TPM", func(to transport.TPM) (opened []byte, err error) {
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
	return session{tpm2.PasswordAuth(nil), begun.SessionHandle, begun.NonceTPM}, nil
}

// session is a policy session without a key of its own, so no command of it has an HMAC. One of go-tpm
// brings all that a session with a key needs, which is 20 KiB of a program.
type session struct {
	tpm2.Session // of a password, for what the two have in common
	handle       tpm2.TPMHandle
	nonce        tpm2.TPM2BNonce // the TPM's
}

// CleanupFailure and the others implement [tpm2.Session].
func (s session) CleanupFailure(to transport.TPM) error {
	_, err := tpm2.FlushContext{FlushHandle: s.handle}.Execute(to)
	return err
}
func (s session) Handle() tpm2.TPMHandle { return s.handle }
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
	return withPrimary(to, tpm2.TPMRHEndorsement, "endorsement key", of.template,
		func(key *tpm2.CreatePrimaryResponse) error { return do(key, certificate) })
}

// withPrimary makes the key of a hierarchy that has a template, and takes it out of the TPM's memory afterwards.
func withPrimary(to transport.TPM, of tpm2.TPMHandle, name string, template tpm2.TPMTPublic,
	do func(*tpm2.CreatePrimaryResponse) error) error {
	key, err := tpm2.CreatePrimary{PrimaryHandle: of, InPublic: tpm2.New2B(template)}.Execute(to)
	if err != nil {
		return fmt.Errorf("make the %s: %w", name, err)
	}
	err = do(key)
	_, gone := tpm2.FlushContext{FlushHandle: key.ObjectHandle}.Execute(to)
	return errors.Join(err, gone)
}

// publicNV returns what an index is, nil where there is none.
func publicNV(to transport.TPM, index tpm2.TPMHandle) (*tpm2.TPMSNVPublic, *tpm2.TPM2BName, error) {
	is, err := tpm2.NVReadPublic{NVIndex: index}.Execute(to)
	if err != nil {
		return nil, nil, fault.But(err, tpm2.TPMRCHandle)
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
	q, err := do(t, "quote registers", func(to transport.TPM) (q Quoted, err error) {
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
		return nil, err
	}
	return &q, nil
}

// Key returns the public part of the key of quotes, a TPMT_PUBLIC.
func (t TPM) Key() ([]byte, error) {
	return do(t, "the key of the TPM", func(to transport.TPM) (public []byte, err error) {
		err = withKey(to, func(key *tpm2.CreatePrimaryResponse) error {
			public = key.OutPublic.Bytes()
			return nil
		})
		return public, err
	})
}

// withKey makes the key, and takes it out of the TPM's memory afterwards.
func withKey(to transport.TPM, do func(*tpm2.CreatePrimaryResponse) error) error {
	return withPrimary(to, tpm2.TPMRHOwner, "key", template, do)
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

// ErrForeign is returned of what this TPM cannot load: it was sealed to another one, or to this one
// before it was cleared, or it is damaged.
var ErrForeign = errors.New("it is sealed to another TPM, or this one was cleared since")

// ErrOther is returned where registers hold something else than was approved.
var ErrOther = errors.New("the TPM has measured another loader than the one that is signed")

// Approval is what the owner of a key says of registers: that with what they hold then, a machine may
// open what is sealed to the key.
type Approval struct {
	Key       *rsa.PublicKey
	Registers []uint // of SHA-256
	Policy    []byte // the digest of TPM2_PolicyPCR over them
	Signature []byte // of Policy, by PKCS #1 v1.5 with SHA-256
}

// Seal seals at most 128 bytes to the TPM, and to the key whose approvals open them. What comes of it is
// for this TPM alone: a TPM2B_PUBLIC, and the private part behind it.
func (t TPM) Seal(secret []byte, key *rsa.PublicKey) ([]byte, error) {
	return do(t, "seal to the TPM", func(to transport.TPM) (sealed []byte, err error) {
		err = withStorage(to, func(parent tpm2.AuthHandle) error {
			made, err := tpm2.Create{ParentHandle: parent,
				InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{
					Data: tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: secret})}},
				InPublic: tpm2.New2B(tpm2.TPMTPublic{Type: tpm2.TPMAlgKeyedHash, NameAlg: tpm2.TPMAlgSHA256,
					ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, NoDA: true},
					AuthPolicy:       tpm2.TPM2BDigest{Buffer: approvedBy(key)},
					Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgKeyedHash,
						&tpm2.TPMSKeyedHashParms{Scheme: tpm2.TPMTKeyedHashScheme{Scheme: tpm2.TPMAlgNull}})}),
			}.Execute(to)
			if err != nil {
				return err
			}
			public := made.OutPublic.Bytes()
			sealed = append(binary.BigEndian.AppendUint16(nil, uint16(len(public))), public...)
			sealed = append(sealed, made.OutPrivate.Buffer...)
			return nil
		})
		return sealed, err
	})
}

// Unseal opens what [TPM.Seal] has made: [ErrForeign] where it is not this TPM's, [ErrOther] where its
// registers hold something else. The answer goes over the machine's bus as it is.
func (t TPM) Unseal(sealed []byte, by Approval) ([]byte, error) {
	return do(t, "open what is sealed to the TPM", func(to transport.TPM) (opened []byte, err error) {
		if len(sealed) < 2 || len(sealed)-2 < int(binary.BigEndian.Uint16(sealed)) {
			return nil, ErrForeign
		}
		public, private := sealed[2:][:binary.BigEndian.Uint16(sealed)], sealed[2+binary.BigEndian.Uint16(sealed):]
		err = withStorage(to, func(parent tpm2.AuthHandle) error {
			key, err := tpm2.Load{ParentHandle: parent, InPublic: tpm2.BytesAs2B[tpm2.TPMTPublic](public),
				InPrivate: tpm2.TPM2BPrivate{Buffer: private}}.Execute(to)
			if refused, ok := errors.AsType[tpm2.TPMRC](err); ok && !refused.IsWarning() { // a warning is of now
				return fmt.Errorf("%w: %w", ErrForeign, err)
			}
			if err != nil {
				return err
			}
			opened, err = unseal(to, tpm2.NamedHandle{Handle: key.ObjectHandle, Name: key.Name}, by)
			_, gone := tpm2.FlushContext{FlushHandle: key.ObjectHandle}.Execute(to)
			return errors.Join(err, gone)
		})
		return opened, err
	})
}

func unseal(to transport.TPM, key tpm2.NamedHandle, by Approval) ([]byte, error) {
	s, err := begin(to)
	if err != nil {
		return nil, err
	}
	var opened *tpm2.UnsealResponse
	if err = by.satisfy(to, s); err == nil {
		opened, err = tpm2.Unseal{ItemHandle: tpm2.AuthHandle{Handle: key.Handle, Name: key.Name, Auth: s}}.Execute(to)
	}
	if err != nil { // else the TPM has ended the session with the command
		return nil, errors.Join(err, s.CleanupFailure(to))
	}
	return opened.OutData.Buffer, nil
}

// satisfy has a session hold what the key approves, if the registers are so.
func (a Approval) satisfy(to transport.TPM, s session) error {
	if _, err := (tpm2.PolicyPCR{PolicySession: s.handle, Pcrs: selection(a.Registers)}).Execute(to); err != nil {
		return err
	}
	key, err := tpm2.LoadExternal{InPublic: tpm2.New2B(external(a.Key)), Hierarchy: tpm2.TPMRHOwner}.Execute(to)
	if err != nil {
		return fmt.Errorf("load the key of the policy: %w", err)
	}
	sum := sha256.Sum256(a.Policy)
	verified, err := tpm2.VerifySignature{KeyHandle: key.ObjectHandle, Digest: tpm2.TPM2BDigest{Buffer: sum[:]},
		Signature: tpm2.TPMTSignature{SigAlg: tpm2.TPMAlgRSASSA, Signature: tpm2.NewTPMUSignature(tpm2.TPMAlgRSASSA,
			&tpm2.TPMSSignatureRSA{Hash: tpm2.TPMAlgSHA256, Sig: tpm2.TPM2BPublicKeyRSA{Buffer: a.Signature}})}}.Execute(to)
	if _, gone := (tpm2.FlushContext{FlushHandle: key.ObjectHandle}).Execute(to); err != nil || gone != nil {
		return errors.Join(fmt.Errorf("the signature of the policy: %w", err), gone)
	}
	_, err = tpm2.PolicyAuthorize{PolicySession: s.handle, ApprovedPolicy: tpm2.TPM2BDigest{Buffer: a.Policy}, KeySign: key.Name,
		CheckTicket: verified.Validation}.Execute(to)
	if errors.Is(err, tpm2.TPMRCValue) {
		return ErrOther
	}
	return err
}

// withStorage makes the key that others are kept under, TCG's of P-256, and takes it out of the TPM's memory afterwards.
func withStorage(to transport.TPM, do func(parent tpm2.AuthHandle) error) error {
	return withPrimary(to, tpm2.TPMRHOwner, "storage key", tpm2.ECCSRKTemplate, func(key *tpm2.CreatePrimaryResponse) error {
		return do(tpm2.AuthHandle{Handle: key.ObjectHandle, Name: key.Name, Auth: tpm2.PasswordAuth(nil)})
	})
}

// approvedBy is the policy of what a key's approvals open: that of TPM2_PolicyAuthorize, without a reference.
func approvedBy(key *rsa.PublicKey) []byte {
	name := sha256.Sum256(tpm2.Marshal(external(key)))
	said := binary.BigEndian.AppendUint32(make([]byte, sha256.Size), uint32(tpm2.TPMCCPolicyAuthorize))
	said = binary.BigEndian.AppendUint16(said, uint16(tpm2.TPMAlgSHA256))
	policy := sha256.Sum256(append(said, name[:]...))
	policy = sha256.Sum256(policy[:]) // and the reference
	return policy[:]
}

// external is a key as TPMs read it. Its name is of all that stands here.
func external(key *rsa.PublicKey) tpm2.TPMTPublic {
	return tpm2.TPMTPublic{Type: tpm2.TPMAlgRSA, NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{UserWithAuth: true, SignEncrypt: true},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA,
			&tpm2.TPMSRSAParms{KeyBits: tpm2.TPMKeyBits(key.N.BitLen()), Exponent: uint32(key.E)}),
		Unique: tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: key.N.Bytes()})}
}
