// SPDX-License-Identifier: Apache-2.0

package post

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

const pemType = "PRIVATE KEY"

// readKey returns the node's key, nil where there is none yet.
func readKey(name string) (*ecdsa.PrivateKey, error) {
	text, err := ownfiles.ReadSecret(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return nil, fmt.Errorf("read the node's key: %s has no PEM block %s", name, pemType)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the node's key: %s: %w", name, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read the node's key: %s is %T", name, parsed)
	}
	if _, err := sign.NewVerifier(&key.PublicKey); err != nil {
		return nil, fmt.Errorf("read the node's key: %s: %w", name, err)
	}
	return key, nil
}

// ensureKey returns the node's key and makes one where there is none. A damaged one is set
// aside: the service says of the new one that it is another.
func ensureKey(name string, say func(string, ...any)) (*ecdsa.PrivateKey, error) {
	key, err := readKey(name)
	if err != nil {
		aside, lost := ownfiles.SetAside(name, err)
		if lost != nil {
			return nil, lost
		}
		say("%v: it is set aside as %s", err, aside)
	}
	if key != nil {
		return key, nil
	}
	if key, err = sign.Generate(); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := durable.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), 0o600); err != nil {
		return nil, fmt.Errorf("keep the node's key: %w", err)
	}
	return key, nil
}

// KeyID returns the id of the key beside a directory of reports, "" where there is
// none yet.
func KeyID(dir string) (string, error) {
	key, err := readKey(keyFile(dir))
	if key == nil || err != nil {
		return "", err
	}
	return sign.VerifierOf(key).ID(), nil
}

// Peek returns the id of the key and how many reports wait on the disk. It changes
// nothing.
func Peek(dir string) (id string, waiting int, err error) {
	if id, err = KeyID(dir); err != nil {
		return "", 0, err
	}
	names, err := filepath.Glob(filepath.Join(dir, spoolName, "[0-9]*.json"))
	return id, len(names), err
}

// Letter holds a report as a node sends it to a service, or puts it into a registry.
type Letter struct {
	URL    string
	Put    *Place // instead of an address
	Header map[string]string
	Body   []byte
	Token  bool // it goes to the service that may ask for this node's token

	Answer *bytes.Buffer `json:"-"` // gets the nonce of the answer, where that has one; nil wants none
}

// Place is where a node's last report is in a registry.
type Place struct {
	Registry string // host[:port]/prefix
	Node     string // its tag
}

// ReportPath is where a service takes reports, below its address.
const ReportPath = "/v1/report"

// HintPath is where a service takes hints of loaders.
const HintPath = "/v1/hint"

// SignSlot signs a request for a slot with the key beside a directory of reports, so
// that a service knows who asks; nil where there is no key yet.
func SignSlot(dir string, r spec.SlotRequest) ([]byte, error) {
	key, err := readKey(keyFile(dir))
	if key == nil || err != nil {
		return nil, err
	}
	r.APIVersion, r.Kind, r.Key = spec.APIVersion, spec.KindSlotRequest, sign.VerifierOf(key).ID()
	data, err := spec.Encode(r)
	if err != nil {
		return nil, fmt.Errorf("sign a request for a slot: %w", err)
	}
	return sign.SignReport(key, data)
}
