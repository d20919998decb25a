// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/test/ukitest"
)

// firmware writes what scripts give to verbs about firmware: "program FILE", one that does nothing;
// "sign FILE PAIR OUT", the same by a boot key; "list CERTIFICATE OUT", as firmware lists it; "has FILE
// CERTIFICATE", whether a file has such a list.
func firmware() {
	if err := writeForFirmware(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "firmware:", err)
		os.Exit(1)
	}
}

func writeForFirmware(what string, args []string) error {
	if what == "program" {
		return os.WriteFile(args[0], ukitest.Stub(8), 0o600)
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	if what == "has" {
		certificate, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		list, _, err := efivar.Read(certificate)
		if err == nil && !bytes.Contains(data, list) {
			err = fmt.Errorf("%s does not list %s", args[0], args[1])
		}
		return err
	}
	if what == "list" {
		block, _ := pem.Decode(data)
		lists, _, err := efivar.Read(block.Bytes)
		if err != nil {
			return err
		}
		return os.WriteFile(args[1], lists, 0o600)
	}
	pair, err := keys.ReadBoot(args[1]+".key", args[1]+".crt", nil)
	if err != nil {
		return err
	}
	key, err := pair.Open()
	if err != nil {
		return err
	}
	if data, err = cms.SignImage(data, key, pair.Certificate()); err != nil {
		return err
	}
	return os.WriteFile(args[2], data, 0o600)
}
