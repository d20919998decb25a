// SPDX-License-Identifier: Apache-2.0

package tpm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Log is the log of one machine's boot. It and the firmware's go over a kexec in the next loader's
// initrd, since a kernel that was entered by kexec does not always find the firmware's. Nothing here
// stops a boot: what could not be measured is said, and who verifies sees that it is missing.
type Log struct {
	TPM      TPM
	Dir      string // where it is kept, below /run
	Carried  string // where the loader before a kexec has left it, in the initramfs
	Firmware string // file of the kernel's with the firmware's own log
	Say      func(format string, args ...any)
}

// LogOf returns the log of this machine. prefix is "" but in tests.
func LogOf(prefix string, say func(string, ...any)) *Log {
	return &Log{TPM: Of(prefix), Dir: prefix + paths.RunMeasured, Carried: prefix + paths.Measured,
		Firmware: prefix + "/sys/kernel/security/tpm0/binary_bios_measurements", Say: say}
}

// Files of the log's directory.
const (
	OwnName      = "log"      // spec.Measured, one a line
	FirmwareName = "firmware" // TCG's crypto-agile log, see "PC Client Platform Firmware Profile"
)

// Add measures what the node is about to do. A machine without a TPM keeps no log.
func (l *Log) Add(m spec.Measured) {
	err := l.add(m)
	if errors.Is(err, ErrNone) {
		err = ErrNone
	}
	fault.Say(l.Say, fault.In(err, "%s is not measured", m.Event))
}

// add extends before it writes: a line that no register has would be a lie, while one that is
// missing is seen.
func (l *Log) add(m spec.Measured) error {
	line, err := spec.Encode(m)
	if err != nil {
		return err
	}
	fault.Say(l.Say, fault.In(l.begin(), "the firmware's log"))
	name := filepath.Join(l.Dir, OwnName)
	log, err := ownfiles.ReadPublic(name, spec.MaxMeasured)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.Event == spec.MeasuredKexec && bytes.HasSuffix(log, append(slices.Clone(line), '\n')) {
		return nil // a kernel that was not taken is tried again and again
	}
	if len(log)+len(line)+1 > spec.MaxMeasured {
		return fmt.Errorf("the log has %d bytes, until the next boot of the machine", len(log))
	}
	if err := l.TPM.Extend(spec.PCR, sha256.Sum256(line)); err != nil {
		return err
	}
	return durable.WriteFile(name, append(append(log, line...), '\n'), 0o600)
}

// begin takes over what the loader before a kexec has left, or what the firmware has written,
// once a boot.
func (l *Log) begin() error {
	if _, err := os.Stat(l.Dir); err == nil {
		return nil
	}
	if err := durable.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{OwnName, FirmwareName} {
		data, err := ownfiles.ReadPublic(filepath.Join(l.Carried, name), spec.MaxFirmware)
		if errors.Is(err, fs.ErrNotExist) && name == FirmwareName {
			data, err = ownfiles.ReadPublic(l.Firmware, spec.MaxFirmware)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = durable.WriteFile(filepath.Join(l.Dir, name), data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Carry adds the log to an archive for the next loader.
func (l *Log) Carry(to *cpio.Archive) error {
	for _, name := range []string{OwnName, FirmwareName} {
		data, err := ownfiles.ReadPublic(filepath.Join(l.Dir, name), spec.MaxFirmware)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		to.File(paths.Measured+"/"+name, data, 0o600)
	}
	return nil
}

// MountSecurityfs mounts the file system in which the kernel shows the firmware's log, and what it
// has of AppArmor.
func MountSecurityfs() error {
	err := unix.Mount("securityfs", "/sys/kernel/security", "securityfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	return fault.In(fault.But(err, unix.EBUSY), "mount securityfs")
}

// Key returns the digest of the key that the TPM quotes with, spec.NoTPM where there is none.
func (l *Log) Key() (string, error) {
	public, err := l.TPM.Key()
	if errors.Is(err, ErrNone) {
		return spec.NoTPM, nil
	}
	if err != nil {
		return "", err
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
