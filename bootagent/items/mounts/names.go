// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"fmt"
	"os/user"
	"strconv"
	"strings"
)

// numbers puts numbers in the places of users and groups, as mount(8) does: the kernel knows no
// names. One that is not there may come with this generation's accounts.
func (o *options) numbers() error {
	for _, words := range [][]string{o.words, o.data} {
		for n, word := range words {
			key, name, _ := strings.Cut(word, "=")
			if _, err := strconv.ParseUint(name, 10, 32); err == nil || name == "" {
				continue
			}
			number, err := "", error(nil)
			switch key {
			case "uid":
				var u *user.User
				if u, err = user.Lookup(name); err == nil {
					number = u.Uid
				}
			case "gid":
				var g *user.Group
				if g, err = user.LookupGroup(name); err == nil {
					number = g.Gid
				}
			default:
				continue
			}
			if err != nil {
				return fmt.Errorf("%s %q is %w", map[string]string{"uid": "user", "gid": "group"}[key], name, errDeferred)
			}
			words[n] = key + "=" + number
		}
	}
	return nil
}
