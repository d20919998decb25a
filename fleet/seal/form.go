// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules/credential"
)

// form refuses a value that a node could do nothing with. Its errors have nothing of it.
type form func(value []byte) error

// formsOf notes which secrets of an overlay have a form, by name.
func formsOf(o *spec.Overlay, forms map[string]form) {
	for _, p := range o.Items.Passwords {
		forms[p.Secret] = isHash
	}
	if o.Agent == nil || o.Agent.Credentials == nil {
		return
	}
	if name := o.Agent.Credentials.Registry; name != "" {
		forms[name] = isLogin
	}
	if name := o.Agent.Credentials.Report; name != "" && o.Agent.Report != nil && o.Agent.Report.Registry != "" {
		forms[name] = isLogin
	}
}

// isHash refuses a password that nobody could log in with.
func isHash(value []byte) error {
	if problem, _ := credential.HashProblem(strings.TrimSuffix(string(value), "\n")); problem != "" {
		return cli.WithHint(errors.New("it is the password of an account, and its value is not a crypt(5) hash"), "mkpasswd --method=yescrypt prints one")
	}
	return nil
}

// isLogin refuses what does not log in to any registry.
func isLogin(value []byte) error {
	var file struct {
		Auths map[string]struct{} `json:"auths"`
	}
	if json.Unmarshal(value, &file) != nil || len(file.Auths) == 0 {
		return cli.WithHint(errors.New("it logs in to a registry, and its value is not in the form of docker's config.json"), `as in {"auths":{"registry.example.org":{"auth":"BASE64 OF USER:PASSWORD"}}}`)
	}
	return nil
}
