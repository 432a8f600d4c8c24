// What processors of orders in Go have in common: the lines of orders.py, and settings.
//
// Owns: one line in one write, and KEY=VALUE words.
// Must never: know a client.
package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"
)

type line struct {
	Event  string  `json:"event"`
	Places []int32 `json:"p,omitempty"`
	Ids    []int64 `json:"ids,omitempty"`
	Code   string  `json:"code,omitempty"`
}

func say(said line) {
	text, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(text, '\n'))
}

func settings(words []string) map[string]string {
	set := map[string]string{}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		set[key] = value
	}
	return set
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return found
}

func milliseconds(text string) time.Duration {
	return time.Duration(number(text)) * time.Millisecond
}
