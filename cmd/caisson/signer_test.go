// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caisson-os/caisson/oci/keys"
)

// hsm is a program that holds a key in hsm.pem, for the scripts. It is called as
// --signer-command says: "hsm MOOD public" and "hsm MOOD sign". "hsm new CURVE
// FILE" makes a PKCS#8 file.
func hsm() {
	if err := holdKey(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "hsm:", err)
		os.Exit(1)
	}
}

func holdKey(mood, verb string, args []string) error {
	if mood == "new" {
		var key crypto.Signer
		var err error
		switch verb {
		case "RSA-2048":
			key, err = rsa.GenerateKey(rand.Reader, 2048)
		case "P-384":
			key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		default:
			key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		}
		if err != nil {
			return err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return err
		}
		return os.WriteFile(args[0], pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
	}
	var key crypto.Signer
	key, err := keys.Open("hsm.pem", nil)
	if err != nil {
		key, err = keys.BootSigner("hsm.pem", nil)
	}
	if err != nil {
		return err
	}
	if verb == "public" {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return err
		}
		return pem.Encode(os.Stdout, &pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}
	asked, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	digest, err := hex.DecodeString(strings.TrimSpace(string(asked)))
	if err != nil || len(digest) != 32 {
		return fmt.Errorf("asked to sign %q", asked)
	}
	switch mood {
	case "wrong":
		digest[0] ^= 1
	case "text":
		fmt.Println("no, thank you!")
		return nil
	}
	sig, err := key.Sign(rand.Reader, digest, crypto.SHA256)
	if err != nil {
		return err
	}
	fmt.Println(base64.StdEncoding.EncodeToString(sig))
	return nil
}
