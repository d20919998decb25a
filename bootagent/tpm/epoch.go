// SPDX-License-Identifier: Apache-2.0

package tpm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// epochIndex is the NV index of the epoch, among those that TCG's "Registry of Reserved TPM 2.0 Handles"
// leaves to the owner of a machine.
const epochIndex = tpm2.TPMHandle(0x0181ca15)

const epochSize = 8 // bytes, a number in network order

// Epoch notes that an epoch of a fleet was accepted, 0 for none, and returns the highest one that was
// ever noted; 0 as well where nothing was, and on a machine without a TPM. There is one index: that of
// another fleet is deleted when the first epoch of this one is noted.
func (t TPM) Epoch(fleet string, accepted uint64) (highest uint64, err error) {
	highest, err = do(t, func(to transport.TPM) (uint64, error) {
		return epoch(to, sha256.Sum256([]byte("epoch of "+fleet)), accepted)
	})
	if errors.Is(err, ErrNone) {
		return 0, nil
	}
	if err != nil {
		return highest, fmt.Errorf("the epoch that the TPM keeps: %w", err)
	}
	return highest, nil
}

// epoch is Epoch of the fleet that an index names as its policy, which nothing uses.
func epoch(to transport.TPM, fleet [32]byte, accepted uint64) (highest uint64, err error) {
	public, name, err := publicNV(to, epochIndex)
	if err != nil {
		return 0, err
	}
	ours := public != nil && public.Attributes.NT == tpm2.TPMNTOrdinary && public.DataSize == epochSize && bytes.Equal(public.AuthPolicy.Buffer, fleet[:])
	if ours && public.Attributes.Written {
		data, err := readNV(to, epochIndex, epochSize)
		if err != nil {
			return 0, err
		}
		highest = binary.BigEndian.Uint64(data) // which is whole, as long as the index is
	}
	if accepted <= highest {
		return highest, nil
	}
	owner := tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)}
	if public != nil && !ours {
		if _, err := (tpm2.NVUndefineSpace{AuthHandle: owner, NVIndex: tpm2.NamedHandle{Handle: epochIndex, Name: *name}}).Execute(to); err != nil {
			return 0, fmt.Errorf("delete what is of another fleet: %w", err)
		}
	}
	if !ours {
		if _, err := (tpm2.NVDefineSpace{AuthHandle: owner, PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{NVIndex: epochIndex, NameAlg: tpm2.TPMAlgSHA256,
			Attributes: tpm2.TPMANV{NT: tpm2.TPMNTOrdinary, OwnerWrite: true, OwnerRead: true, AuthRead: true, NoDA: true},
			AuthPolicy: tpm2.TPM2BDigest{Buffer: fleet[:]}, DataSize: epochSize})}).Execute(to); err != nil {
			return 0, fmt.Errorf("make room: %w", err)
		}
		if _, name, err = publicNV(to, epochIndex); err != nil || name == nil {
			return 0, errors.Join(errors.New("the room that was made is not there"), err)
		}
	}
	if _, err := (tpm2.NVWrite{AuthHandle: owner, NVIndex: tpm2.NamedHandle{Handle: epochIndex, Name: *name},
		Data: tpm2.TPM2BMaxNVBuffer{Buffer: binary.BigEndian.AppendUint64(nil, accepted)}}).Execute(to); err != nil {
		return highest, fmt.Errorf("note epoch %d: %w", accepted, err)
	}
	return accepted, nil
}
