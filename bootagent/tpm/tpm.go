// SPDX-License-Identifier: Apache-2.0

// Package tpm gives the few commands to a machine's TPM 2.0 that a node needs: it extends a
// register, has registers quoted by a key that never leaves the TPM, and notes an epoch. See TCG's "TPM 2.0
// Library", part 3, and tpmrm0, the kernel's own resource manager.
//
// Before each kexec, stack and soft-reboot a node has one line extended into register [spec.PCR], and
// written into a [Log] that others replay: the register says that nothing is missing of the log.
//
// It decides nothing, and does not know who asks for a quote. A TPM that hangs is waited for
// once a boot, for so long and no longer.
package tpm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
)

// Device is how Linux shows a TPM 2.0.
const Device = "/dev/tpmrm0"

// ErrNone is returned on a machine without a TPM 2.0.
var ErrNone = errors.New("no TPM 2.0")

// ErrHung is returned of a TPM that was given up in this boot.
var ErrHung = errors.New("the TPM has not answered earlier in this boot, and is not asked again before the next one")

// TPM is a machine's TPM.
type TPM struct {
	Open  func() (io.ReadWriteCloser, error) // anew for each command
	Limit time.Duration                      // of a command, with all that it takes
	Hung  string                             // file that is there once one took longer: no other is given; "" for none
}

// Of returns the TPM of this machine. root is a prefix of its paths, "" but in tests.
func Of(root string) TPM {
	return TPM{Limit: 20 * time.Second, Hung: root + paths.RunHung,
		Open: func() (io.ReadWriteCloser, error) { return os.OpenFile(root+Device, os.O_RDWR, 0) }}
}

// do gives commands to the TPM; what says what they are for. Where they take too long, they are left to end by
// themselves, with what they return: nothing else can be done about a driver that waits for its hardware.
func do[T any](t TPM, what string, commands func(transport.TPM) (T, error)) (none T, err error) {
	defer func() { err = fault.In(err, "%s", what) }()
	if _, err := os.Stat(t.Hung); err == nil {
		return none, ErrHung
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		rw, err := t.Open()
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
			r.err = ErrNone
		case err != nil:
			r.err = err
		default:
			r.value, err = commands(transport.FromReadWriter(rw))
			r.err = errors.Join(err, rw.Close())
		}
		done <- r
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(t.Limit):
		err := fmt.Errorf("the TPM has not answered within %s", t.Limit)
		if t.Hung == "" {
			return none, err
		}
		return none, errors.Join(err, os.WriteFile(t.Hung, nil, 0o600)) // for this boot alone, so nothing has to last
	}
}

// Extend extends a digest into a register of SHA-256.
func (t TPM) Extend(register uint32, digest [32]byte) error {
	_, err := do(t, fmt.Sprintf("extend register %d", register), func(to transport.TPM) (*tpm2.PCRExtendResponse, error) {
		return tpm2.PCRExtend{
			PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(register), Auth: tpm2.PasswordAuth(nil)},
			Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: digest[:]}}},
		}.Execute(to)
	})
	return err
}

// Read returns what is in registers of SHA-256, in their order.
func (t TPM) Read(registers ...uint) ([][]byte, error) {
	return do(t, fmt.Sprintf("read registers %v", registers), func(to transport.TPM) ([][]byte, error) { return read(to, registers) })
}

// perCommand is how many registers a TPM reads at a time, at most.
const perCommand = 8

func read(to transport.TPM, registers []uint) (values [][]byte, err error) {
	for len(registers) > 0 {
		n := min(perCommand, len(registers))
		answer, err := tpm2.PCRRead{PCRSelectionIn: selection(registers[:n])}.Execute(to)
		if err != nil {
			return nil, err
		}
		if len(answer.PCRValues.Digests) != n {
			return nil, errors.New("the TPM keeps no registers of SHA-256; its bank is switched on in the firmware's setup")
		}
		for _, d := range answer.PCRValues.Digests {
			values = append(values, d.Buffer)
		}
		registers = registers[n:]
	}
	return values, nil
}

func selection(registers []uint) tpm2.TPMLPCRSelection {
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{Hash: tpm2.TPMAlgSHA256,
		PCRSelect: tpm2.PCClientCompatible.PCRs(registers...)}}}
}

// epochIndex is the NV index of the epoch, among those that TCG's "Registry of Reserved TPM 2.0 Handles"
// leaves to the owner of a machine.
const epochIndex = tpm2.TPMHandle(0x0181ca15)

const epochSize = 8 // bytes, a number in network order

// Epoch notes that an epoch of a fleet was accepted, 0 for none, and returns the highest one that was
// ever noted; 0 as well where nothing was, and on a machine without a TPM. There is one index: that of
// another fleet is deleted when the first epoch of this one is noted.
func (t TPM) Epoch(fleet string, accepted uint64) (highest uint64, err error) {
	highest, err = do(t, "the epoch that the TPM keeps", func(to transport.TPM) (uint64, error) {
		return epoch(to, sha256.Sum256([]byte("epoch of "+fleet)), accepted)
	})
	return highest, fault.But(err, ErrNone)
}

// epoch is Epoch of the fleet that an index names as its policy, which nothing uses.
func epoch(to transport.TPM, fleet [32]byte, accepted uint64) (highest uint64, err error) {
	public, name, err := publicNV(to, epochIndex)
	if err != nil {
		return 0, err
	}
	ours := public != nil && public.Attributes.NT == tpm2.TPMNTOrdinary && public.DataSize == epochSize &&
		bytes.Equal(public.AuthPolicy.Buffer, fleet[:])
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
		if _, err := (tpm2.NVDefineSpace{AuthHandle: owner, PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{NVIndex: epochIndex,
			NameAlg: tpm2.TPMAlgSHA256, Attributes: tpm2.TPMANV{NT: tpm2.TPMNTOrdinary, OwnerWrite: true, OwnerRead: true, AuthRead: true, NoDA: true},
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
