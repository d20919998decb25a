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
)

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
	sealed, err := do(t, func(to transport.TPM) (sealed []byte, err error) {
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
	if err != nil {
		return nil, fmt.Errorf("seal to the TPM: %w", err)
	}
	return sealed, nil
}

// Unseal opens what [TPM.Seal] has made: [ErrForeign] where it is not this TPM's, [ErrOther] where its
// registers hold something else. The answer goes over the machine's bus as it is.
func (t TPM) Unseal(sealed []byte, by Approval) ([]byte, error) {
	opened, err := do(t, func(to transport.TPM) (opened []byte, err error) {
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
	if err != nil {
		return nil, fmt.Errorf("open what is sealed to the TPM: %w", err)
	}
	return opened, nil
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
	key, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(to)
	if err != nil {
		return fmt.Errorf("make the storage key: %w", err)
	}
	err = do(tpm2.AuthHandle{Handle: key.ObjectHandle, Name: key.Name, Auth: tpm2.PasswordAuth(nil)})
	_, gone := tpm2.FlushContext{FlushHandle: key.ObjectHandle}.Execute(to)
	return errors.Join(err, gone)
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
