<?php
// Reports how PHP reads a request. The router script of php -S.
error_reporting(0);

function leaves($place, $value, $name, &$out) {
    if (is_object($value)) {
        $value = (array)$value;
        foreach ($value as $k => $v) {
            leaves($place, $v, $name === '' ? (string)$k : $name . '.' . $k, $out);
        }
    } elseif (is_array($value)) {
        $list = array_is_list($value);
        foreach ($value as $k => $v) {
            leaves($place, $v, $list ? $name : ($name === '' ? (string)$k : $name . '.' . $k), $out);
        }
    } else {
        $out[] = [$place, (string)$name, is_bool($value) ? ($value ? 'true' : 'false') : (string)$value];
    }
}

$method = $_SERVER['REQUEST_METHOD'];
$type = strtolower($_SERVER['CONTENT_TYPE'] ?? '');
$readings = [];
$say = function ($reader, $kind, $fields, $error = '') use (&$readings, $method) {
    $readings[] = ['reader' => $reader, 'kind' => $kind, 'method' => $method, 'fields' => $fields, 'error' => $error];
};

$head = [];
foreach ($_SERVER as $k => $v) {
    if (str_starts_with($k, 'HTTP_')) {
        $head[] = ['header', strtolower(str_replace('_', '-', substr($k, 5))), (string)$v];
    }
}
foreach (['SCRIPT_NAME', 'PATH_INFO', 'PHP_SELF'] as $k) {
    $head[] = ['path', '', (string)($_SERVER[$k] ?? '')];
}
$head[] = ['path', '', rawurldecode(strtok($_SERVER['REQUEST_URI'], '?'))];
if (isset($_SERVER['PHP_AUTH_USER'])) {
    $head[] = ['auth', 'user', $_SERVER['PHP_AUTH_USER']];
    $head[] = ['auth', 'password', $_SERVER['PHP_AUTH_PW'] ?? ''];
}
if (isset($_SERVER['PHP_AUTH_DIGEST'])) {
    $head[] = ['header', 'authorization', $_SERVER['PHP_AUTH_DIGEST']];
}
leaves('header', $_COOKIE, 'cookie', $head);
$say('php', 'head', $head);

$query = [];
leaves('query', $_GET, '', $query);
$say('php', 'query', $query);

$raw = file_get_contents('php://input');
$fields = [];
leaves('body', $_POST, '', $fields);
foreach ($_FILES as $name => $file) {
    leaves('filename', $file['name'] ?? '', (string)$name, $fields);
    leaves('filename', $file['full_path'] ?? '', (string)$name, $fields);
    leaves('filename', $file['type'] ?? '', (string)$name, $fields);
    $temporary = (array)$file['tmp_name'];
    array_walk_recursive($temporary, function ($t) use (&$fields, $name) {
        $fields[] = ['file', (string)$name, (string)@file_get_contents($t)];
    });
}
if ($_POST || $_FILES) {
    $say('php', str_contains($type, 'multipart') ? 'multipart' : 'form', $fields);
}
if ($raw !== '' && $raw !== false) {
    $value = json_decode($raw);
    $fields = [];
    leaves('body', $value, '', $fields);
    $say('php-json', str_contains($type, 'json') ? 'json' : 'untyped', $fields, json_last_error() ? json_last_error_msg() : '');
    if ($type === '' || str_contains($type, 'urlencoded')) {
        parse_str($raw, $form);
        $fields = [];
        leaves('body', $form, '', $fields);
        $say('php-parse_str', 'form', $fields);
    }
}
header('Content-Type: application/json');
echo json_encode(['readings' => $readings], JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR);
