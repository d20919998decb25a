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
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/sys/unix"

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

// do gives commands to the TPM. Where they take too long, they are left to end by themselves, with
// what they return: nothing else can be done about a driver that waits for its hardware.
func do[T any](t TPM, commands func(transport.TPM) (T, error)) (none T, err error) {
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
	_, err := do(t, func(to transport.TPM) (*tpm2.PCRExtendResponse, error) {
		return tpm2.PCRExtend{
			PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(register), Auth: tpm2.PasswordAuth(nil)},
			Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: digest[:]}}},
		}.Execute(to)
	})
	if err != nil {
		return fmt.Errorf("extend register %d: %w", register, err)
	}
	return nil
}

// Read returns what is in registers of SHA-256, in their order.
func (t TPM) Read(registers ...uint) ([][]byte, error) {
	values, err := do(t, func(to transport.TPM) ([][]byte, error) { return read(to, registers) })
	if err != nil {
		return nil, fmt.Errorf("read registers %v: %w", registers, err)
	}
	return values, nil
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
