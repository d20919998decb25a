// SPDX-License-Identifier: Apache-2.0

package tpm

import (
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/tpmtest"
)

func TestExtend(t *testing.T) {
	tpm := TPM{Open: tpmtest.Start(t), Limit: time.Minute}
	var want [32]byte
	for _, text := range []string{"one", "two"} {
		d := sha256.Sum256([]byte(text))
		want = spec.Extend(want, d)
		if err := tpm.Extend(spec.PCR, d); err != nil {
			t.Fatal(err)
		}
	}
	got, err := tpm.Read(0, 1, 2, 3, 4, 5, 6, 7, 11, spec.PCR)
	if err != nil || len(got) != 10 || string(got[9]) != string(want[:]) || string(got[8]) == string(want[:]) {
		t.Errorf("%x, %v; want %x", got, err, want)
	}
}

// TestATPMThatDoesNotAnswer is waited for so long, and one that is not there is no trouble.
func TestATPMThatDoesNotAnswer(t *testing.T) {
	here, there := net.Pipe()
	t.Cleanup(func() { there.Close() })
	go io.Copy(io.Discard, there) // until it is closed
	err := TPM{Open: func() (io.ReadWriteCloser, error) { return here, nil }, Limit: 50 * time.Millisecond}.Extend(spec.PCR, [32]byte{})
	if err == nil || !strings.Contains(err.Error(), "has not answered within 50ms") {
		t.Error(err)
	}
	tpm := TPM{Open: func() (io.ReadWriteCloser, error) { return here, nil }, Limit: 50 * time.Millisecond, Hung: t.TempDir() + "/hung"}
	if _, err := tpm.Read(0); err == nil || !strings.Contains(err.Error(), "has not answered within 50ms") {
		t.Error(err)
	}
	tpm.Limit = time.Hour
	if _, err := tpm.Key(); !errors.Is(err, ErrHung) { // nor does the next process of this boot wait for it
		t.Error(err)
	}
	if err := Of(t.TempDir()).Extend(spec.PCR, [32]byte{}); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

// TestATPMThatRefuses says which command was refused: there is no register 99.
func TestATPMThatRefuses(t *testing.T) {
	err := TPM{Open: tpmtest.Start(t), Limit: time.Minute}.Extend(99, [32]byte{})
	if err == nil || !strings.HasPrefix(err.Error(), "extend register 99: TPM_RC_VALUE") {
		t.Error(err)
	}
}
